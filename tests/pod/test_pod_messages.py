"""Messages of torch.distributed as nodes of the graphs of their two ranks (docs/pod.md)."""

import pod_messages
import pods
import pytest
import torch.distributed as dist


def world(rank, fn, *args):
    """`fn` in a world of its own."""
    dist.init_process_group("xla_cc")
    try:
        return fn(rank, *args)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("mib", [1, 5])
def test_both_send_before_they_receive(mib, batch):
    found = pods.run(2, world, pod_messages.swapped, mib, batch)
    assert [values for values, _ in found] == [[4.0], [2.0]]
    assert all(ran == 1 for _, ran in found)  # with what computes it


def test_a_step_is_one_program():
    found = pods.run(3, world, pod_messages.passed_on, 3, 6)
    assert all(values == [(0 + 1 + 2) + 3 * (5 + 2)] * 3 for values, _ in found)
    assert all(ran == [1, 1] for _, ran in found)


def test_receives_are_of_the_order_in_which_they_were_posted():
    assert pods.run(3, world, pod_messages.waited_in_another_order)[1] == [2, 0, 3, 1]


def test_other_messages_go_through_the_host():
    found = pods.run(2, world, pod_messages.beside_others)
    assert found == [
        ([2.0] * 3, [5.0] * 3, [0.0] * 3),
        ([1.0] * 3, [10.0] * 3, [10.0] * 3),
    ]


def test_types_shapes_and_parts():
    wrong, whole = pods.run(2, world, pod_messages.of_each_kind)[1]
    assert not wrong
    assert whole == [[0.0] * 3] * 2 + [[1.0, 5.0, 9.0]] + [[0.0] * 3]


@pytest.mark.parametrize("what", ["shape", "nothing", "group"])
def test_a_message_that_is_not_the_one_received(what):
    with pods.ranks(3) as ranks:
        for error in ranks.run(pods.joined, world, pod_messages.differ, what):
            assert "the collectives in which rank 0 sends to rank 1 differ" in error


def test_tags_go_through_the_host():
    assert pods.run(2, world, pod_messages.tags_in_another_order)[1] == (1.0, 2.0)


def test_a_sender_that_is_late():
    assert pods.run(2, world, pod_messages.late)[1] == [4.0] * 3


def test_who_asks_whether_it_has_come():
    assert pods.run(2, world, pod_messages.asked)[0] == [6.0] * 3


@pytest.mark.parametrize("mib", [1, 12])
def test_a_sender_at_its_end(mib):
    with pods.ranks(2) as ranks:
        assert ranks.run(pods.joined, world, pod_messages.sent_at_the_end, mib)[1] == [7.0]


def test_a_world_after_another():
    assert pods.run(2, world, pod_messages.in_two_worlds, False)[1] == [5.0] * 3
    with pods.ranks(2) as ranks:
        found = ranks.run(pods.joined, world, pod_messages.in_two_worlds, True)
    assert "destroyed while a receive from device 0 was posted" in found[1]


def test_programs_have_an_end():
    assert pods.run(2, world, pod_messages.without_end, 1500)[1] == sum(range(1500))


@pytest.mark.parametrize(("size", "seed"), [(2, 1), (3, 2), (3, 3), (4, 4)])
def test_at_random(size, seed):
    found = pods.run(size, world, pod_messages.at_random, size, seed, 60, timeout_s=200.0)
    assert found == [[]] * size


def test_by_gloo_they_go_through_the_host():
    with pods.ranks(2, TORCH_XLA_CC_POD_COLLECTIVES="gloo") as ranks:
        found = ranks.run(pods.joined, world, pod_messages.swapped, 1, False)
    assert [values for values, _ in found] == [[4.0], [2.0]]
