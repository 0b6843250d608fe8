"""When a device process waits for all of a group before it begins; and where rank 0 is reached."""

import threading

import pytest

from torch_xla_cc._pod.pod_device import attendance, meetings

pytest.importorskip("jaxlib", reason="the pod needs it")


def test_all_are_awaited_the_first_time():
    """As gloo connects the ranks of a group then, and waits for each 30 s."""
    from torch_xla_cc._pod.pod_device.world import World

    said = []

    class Attendance:
        def begin(self, key, calls, asks):
            said.append((bool(calls), asks))

    world = World({"rank": "0", "world": "1"}, print, str)
    world._attendance = Attendance()
    sums, other = meetings.one((0, 1), "all-reduce"), meetings.one((0, 1), "all-gather")
    third = meetings.one((0, 2), "all-reduce")
    both = meetings.Calls((*sums.groups, *third.groups), sums.words)
    for calls in (sums, sums, other, both, both, third):
        world.meets(calls, calls.key(), ())
    world.meets(other, other.key(), (), impatient=True)
    assert said == [
        (True, "awaits"),
        (False, ""),  # known: only told
        (True, "asks"),
        (True, "asks"),  # of several groups: one may come when another has met
        (False, ""),
        (True, "awaits"),  # it may be new to gloo as well
        (False, "awaits"),  # nothing in the program waits for those that are late
    ]


def test_rank_0_ends_last():
    """The world's names end on all ranks together, so before rank 0 waits for their processes."""
    from torch_xla_cc._pod.pod_device.world import World

    done = []

    class All:
        def __getattr__(self, name):
            return lambda *_: done.append(name) or True

    world = World({"rank": "0", "world": "1"}, print, str)
    world._attendance = world._names = All()
    world.leave()
    assert done == ["leaves", "wait_for_room", "leave", "end", "end"]


@pytest.mark.parametrize(
    ("reached", "wanted"),
    [
        ({"127.0.0.1"}, None),
        ({"127.0.0.1", "127.0.1.1", "10.0.0.2"}, "10.0.0.2"),
    ],
)
def test_where_rank_0_is_reached(reached, wanted):
    """The name of a machine stands for 127.0.1.1 in its own files."""
    host = object.__new__(attendance.Host)
    host._changed, host._wrong = threading.Condition(), ""
    host._there, host._left, host._size = {}, set(), 1
    host._reached = reached
    asked = []
    host.meet(lambda address: str(asked.append(address)), 1.0)
    assert asked == [wanted]
