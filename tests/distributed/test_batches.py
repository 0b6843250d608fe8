"""Batches of isend and irecv in the graph: what comes, what they become, what is refused."""

import as_tpu
import batches
import pods
import pytest
import torch
import worlds

RUN = {"threads": worlds.run, "pod": pods.run, "as tpu": as_tpu.run}
ROUNDS = {"both_ways": 3, "a_ring": 1, "a_line": 2, "swap_in_place": 1}


@pytest.mark.parametrize("name", batches.PLANS)
@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("where", RUN)
def test_as_gloo(where, world, name):
    if name == "swap_in_place" and world == 3:
        pytest.skip("rank 1 would swap with itself, which torch.distributed refuses")
    for rank, (ours, wanted, nodes) in enumerate(RUN[where](world, batches.with_gloo, name)):
        if name != "swap_in_place":  # gloo receives into what it sends
            assert all(torch.equal(x, y) for x, y in zip(ours, wanted, strict=True))
        else:
            assert torch.equal(ours[0], torch.arange(4.0) + 100 * (world - 1 - rank))
        if rank == 0:  # of threads it sees those of all
            times = ROUNDS[name] * (1 if where == "pod" else world)
            assert nodes == ["collective_permute"] * times


def test_what_a_tpu_runs():
    """A ring, as the work of one rank: one native instruction."""
    from torch_xla_cc import _aot

    (module, *_) = worlds.run(8, batches.traced, "a_ring")
    program = _aot.compile_hlo(module, "tpu:v5e:2x4")
    collectives = [i.opcode for i in program.instructions() if "collective" in i.opcode]
    assert collectives in (
        ["collective-permute"],
        ["collective-permute-start", "collective-permute-done"],
    )


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("tag", ["send(float32[3], dst rank 1, tag 0)", "is received by nobody", "gets nothing"]),
        ("shape", ["send(float32[1], dst rank 1, tag 0)", "meets rank 1's recv(float32[3]"]),
        ("missing", ["send(float32[3], dst rank 1, tag 0)", "is received by nobody"]),
    ],
)
@pytest.mark.parametrize("where", RUN)
def test_what_does_not_fit(where, name, parts):
    messages = RUN[where](2, batches.wrong, name)
    assert messages[0] == messages[1]
    for part in (*parts, "batches.py:"):
        assert part in messages[0]


@pytest.mark.parametrize("where", RUN)
def test_after_an_error(where):
    assert RUN[where](2, batches.after_an_error) == [[1.0] * 3, [0.0] * 3]


@pytest.mark.parametrize("where", RUN)
def test_in_a_subgroup(where):
    assert RUN[where](4, batches.in_a_subgroup) == [[], [2.0] * 3, [1.0] * 3, []]
