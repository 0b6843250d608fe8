"""When a device process waits for all of a group before it begins; and where rank 0 is reached."""

import threading

import pytest

from torch_xla_cc._pod.pod_device import attendance, meetings

pytest.importorskip("jaxlib", reason="the pod needs it")


class Asked:
    def __init__(self):
        self.said = []

    def ask(self, place, what, awaits):
        self.said.append((place, awaits))

    def tell(self, place, what):
        self.said.append((place, what))


def program(*of):
    class Program:
        meetings = tuple(meetings_of(*one) for one in of)

    return Program


def meetings_of(group, said, awaits=False):
    return meetings.Meeting(group, meetings.what(said), awaits)


def test_all_are_awaited_where_gloo_is_impatient():
    from torch_xla_cc._pod.pod_device.world import World

    world = World({"rank": "0", "world": "1"}, print, str)
    world._attendance = asked = Asked()
    sums, scatters = program(((0, 1), "all-reduce")), program(((0, 1), "reduce-scatter", True))
    both = program(((0, 1), "all-reduce"), ((0, 2), "all-reduce"))
    for one in (sums, sums, scatters, scatters, both, both):
        world.meets(one)
    key = meetings.what("all-reduce").partition(" ")[0]
    assert asked.said == [
        (((0, 1), 0), True),  # the first of a group
        (((0, 1), 1), key),  # known: only told
        (((0, 1), 2), True),
        (((0, 1), 3), True),
        (((0, 1), 4), False),  # of several groups: one may come when another has met
        (((0, 2), 0), False),
        (((0, 1), 5), key),
        (((0, 2), 1), key),
    ]


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
