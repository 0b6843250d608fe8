"""A pod of one rank: all that torch_xla asks of a device."""

import one_rank
import pods
import processes
import pytest

# Of torch_xla's own: it loses the imaginary part of complex128, and makes NaNs of float16 quiet.
CHANGED_BY_TORCH_XLA = {"complex128", "float16"}


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (3, 5, 2), (64, 1024), (1, 400, 333)])
def test_tensors_come_back_as_they_went(shape):
    (changed,) = pods.run(1, one_rank.round_trips, shape)
    (changed_on_cpu,) = processes.run(1, one_rank.round_trips, shape)
    assert changed == changed_on_cpu
    assert set(changed) <= CHANGED_BY_TORCH_XLA


def test_views():
    assert pods.run(1, one_rank.views) == [[True] * 4]


def test_training_is_that_of_the_cpu():
    ((here, cpu),) = pods.run(1, one_rank.computes)
    assert here == pytest.approx(cpu, rel=1e-5)


def test_many_outputs_and_no_elements():
    ((values, shape),) = pods.run(1, one_rank.no_outputs_and_many)
    assert values == [2.0 * i for i in range(200)]
    assert shape == (0, 3)


@pytest.mark.parametrize("from_host", [False, True])
def test_steps_in_place_keep_one_buffer(from_host):
    size = 16 << 20
    with pods.ranks(1) as ranks:
        ((value, used, peak, limit, grown),) = ranks.run(
            pods.joined, one_rank.donates, size, from_host
        )
    assert value == 11.0
    assert 4 * size <= used <= peak < 5 * size < limit
    # No second buffer, in no step; but for the first, where the segment of the host's tensor stays.
    assert grown < (12 if from_host else 2) * size


def test_memory_is_let_go():
    ((used, growth),) = pods.run(1, one_rank.lets_go, 200)
    assert used < 4 << 20
    # Of the 400 MiB that the second half moves. Segments of 4 MiB come back a moment later.
    assert max(growth) < 64 << 20, growth


def test_a_step_returns_before_it_has_run():
    ((handed_over, took),) = pods.run(1, one_rank.is_asynchronous)
    assert handed_over < took / 2, (handed_over, took)


def test_what_is_left_out_is_named():
    (((dlpack, huge), after),) = pods.run(1, one_rank.unimplemented)
    assert "PJRT_Buffer_IncreaseExternalReferenceCount is not implemented by the pod" in dlpack
    assert "RESOURCE_EXHAUSTED" in huge or "allocate" in huge
    assert after == [2.0] * 4


def test_a_child_drops_tensors_of_the_rank():
    ((said, small, large),) = pods.run(1, one_rank.forks_and_lets_go)
    assert "this process was forked from a rank of the pod" in said
    assert (small, large) == (3.0, 1.0)


def test_it_can_be_traced(tmp_path):
    assert pods.run(1, one_rank.is_traced, str(tmp_path)) == [5.0]


def test_it_describes_itself():
    (told,) = pods.run(1, one_rank.describes)
    assert told == {
        "device": "xla:0",
        "kind": "pod",
        "type": "POD",
        "attributes": [{"process_index": 0, "name": "POD:0"}],
        "hlo": "HloModule",
    }


def test_the_persistent_cache_is_compiled_again(tmp_path):
    # torch_xla 2.9.0 writes its cache with any PJRT plugin, but asks none to read it: it calls
    # PjRtClient::DeserializeExecutable, which its client of plugins does not have.
    for expected in ("PersistentCacheMiss", "PersistentCacheDeserializeFailure"):
        with pods.ranks(1) as ranks:
            ((value, counters),) = ranks.run(pods.joined, one_rank.caches, str(tmp_path))
        assert value == 51.0
        assert counters == {expected}
