"""Messages of torch.distributed as nodes of the graphs of their two ranks (docs/pod.md)."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import awaited_messages
import pod_messages
import pods
import pytest
import torch.distributed as dist

HERE = Path(__file__).parent
PATHS = (HERE.parents[1] / "python", HERE, HERE.parent / "harness")
SCRIPT = """
import sys, pod_messages, torch_xla_cc
if __name__ == "__main__":
    name, ranks, *args = sys.argv[1:]
    fn = getattr(pod_messages, name)
    print(torch_xla_cc.launch(fn, tuple(map(int, args)), int(ranks), pod=True))
"""


def launched(path, name, ranks, *args):
    """What the ranks return, which end as soon as they do."""
    script = path / "launches.py"
    script.write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS)), "OMP_NUM_THREADS": "1"}
    env.pop("PJRT_DEVICE", None)
    command = [sys.executable, str(script), name, str(ranks), *map(str, args)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    return ast.literal_eval(ran.stdout.splitlines()[-1])


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


def test_more_than_may_wait_before_a_program():
    found = pods.run(2, world, pod_messages.swapped, 80, False, True)
    assert [values for values, _ in found] == [[4.0], [2.0]]


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
    (at_sender, _), (wrong, whole) = pods.run(2, world, pod_messages.of_each_kind)
    assert not wrong and not at_sender
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


def test_the_time_limit_is_that_of_the_groups():
    with pods.ranks(2) as ranks:
        error = ranks.run(pods.joined, pod_messages.waits_too_long)[1]
    assert "the time limit of a group in it is 9 s" in error


def test_who_asks_whether_it_has_come():
    assert pods.run(2, world, pod_messages.asked)[0] == [6.0] * 3


def test_threads_that_wait_for_one_receive():
    assert pods.run(2, world, awaited_messages.waited_for_by_threads) == [[], []]


def test_a_signal_handler_that_waits_for_the_same_receive():
    received, asked = pods.run(2, world, awaited_messages.asked_by_a_signal)[1]
    assert received == [*range(40)]
    assert asked


@pytest.mark.parametrize("mib", [1, 12])
def test_a_sender_at_its_end(mib, tmp_path):
    assert launched(tmp_path, "sent_at_the_end", 2, mib)[1] == [7.0]


def test_what_is_never_sent(tmp_path):
    for sender in (0, 1):
        found = launched(tmp_path, "never_sent", 2, sender)
        error = f"rank {sender} has ended, and rank {1 - sender} receives something of it"
        assert error in found[1 - sender][0]


def test_who_leaves_is_not_waited_for(tmp_path):
    found = launched(tmp_path, "left_with_what_is_not_taken", 3, 12)
    assert found[:2] == [[0.0], ["left"]]
    assert "rank 1 has ended, and others run a collective with it" in found[2][0]


def test_a_world_after_another():
    assert pods.run(2, world, pod_messages.in_two_worlds, False)[1] == [5.0] * 3
    with pods.ranks(2) as ranks:
        found = ranks.run(pods.joined, world, pod_messages.in_two_worlds, True)
    assert "destroyed while a receive from device 0 was posted" in found[1]


def test_programs_have_an_end():
    assert pods.run(2, world, pod_messages.without_end, 1100, timeout_s=200.0)[1] == sum(
        range(1100)
    )


@pytest.mark.parametrize(("size", "seed"), [(2, 1), (3, 2), (3, 3), (4, 4)])
def test_at_random(size, seed):
    found = pods.run(size, world, pod_messages.at_random, size, seed, 60, timeout_s=200.0)
    assert found == [[]] * size


def test_by_gloo_they_go_through_the_host():
    with pods.ranks(2, TORCH_XLA_CC_POD_COLLECTIVES="gloo") as ranks:
        found = ranks.run(pods.joined, world, pod_messages.swapped, 1, False, False, "host")
    assert [values for values, _ in found] == [[4.0], [2.0]]
