"""Ranks that do not make the same calls: RanksDisagree on every rank, and they can go on.

XLA:CPU would read out of bounds, swap data or abort the process. Each case below says what rank 1
calls and what the others call, on lines that the message must name.
"""

import inspect
import time

import pytest
import torch
import torch_xla
import worlds
from torch_xla import runtime

from torch_xla_cc import Channel, RanksDisagree
from torch_xla_cc import xla_model as xm

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
SCRAMBLED = [[1, 0, 2, 3]]


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=torch_xla.device())


# (what rank 1 calls, what the others call), a line each.
CASES = {
    "size": (
        lambda: xm.all_gather(ones(3)),
        lambda: xm.all_gather(ones(4)),
    ),
    "size of an operand of a list": (
        lambda: xm.all_reduce("sum", [ones(2), ones(3)]),
        lambda: xm.all_reduce("sum", [ones(2), ones(4)]),
    ),
    "shape of equal size": (
        lambda: xm.all_gather(ones(4, 2)),
        lambda: xm.all_gather(ones(2, 4)),
    ),
    "nothing and something": (
        lambda: xm.all_gather(ones(0)),
        lambda: xm.all_gather(ones(4)),
    ),
    "dtype": (
        lambda: xm.all_reduce("sum", ones(4, dtype=torch.int32)),
        lambda: xm.all_reduce("sum", ones(4)),
    ),
    "number of operands": (
        lambda: xm.all_gather([ones(4), ones(4)]),
        lambda: xm.all_gather([ones(4)]),
    ),
    "op": (
        lambda: xm.all_gather(ones(4)),
        lambda: xm.all_reduce("sum", ones(4)),
    ),
    "op that is lowered to the same": (
        lambda: xm.collective_permute(ones(4), RING),
        lambda: xm.all_gather(ones(1, 4)),
    ),
    "reduce kind": (
        lambda: xm.all_reduce("max", ones(4)),
        lambda: xm.all_reduce("sum", ones(4)),
    ),
    "scale": (
        lambda: xm.all_reduce("sum", ones(4), 0.5),
        lambda: xm.all_reduce("sum", ones(4)),
    ),
    "dim": (
        lambda: xm.all_gather(ones(4, 4), dim=1),
        lambda: xm.all_gather(ones(4, 4), dim=0),
    ),
    "scatter_dim": (
        lambda: xm.reduce_scatter("sum", ones(4, 4), scatter_dim=1),
        lambda: xm.reduce_scatter("sum", ones(4, 4)),
    ),
    "split_dimension": (
        lambda: xm.all_to_all(ones(4, 4), 1, 1),
        lambda: xm.all_to_all(ones(4, 4), 0, 1),
    ),
    "pairs": (
        lambda: xm.collective_permute(ones(4), RING[::2]),
        lambda: xm.collective_permute(ones(4), RING),
    ),
    "pairs of a channel": (
        lambda: [xm.send(ones(4), Channel(RING)), xm.recv((4,), Channel(RING))],
        lambda: [xm.send(ones(4), Channel(RING[:3])), xm.recv((4,), Channel(RING[:3]))],
    ),
    "root": (
        lambda: xm.collective_broadcast([ones(4)], root_ordinal=1),
        lambda: xm.collective_broadcast([ones(4)], root_ordinal=0),
    ),
    "groups": (
        lambda: xm.all_reduce("sum", ones(4), groups=[[0, 1], [2, 3]]),
        lambda: xm.all_reduce("sum", ones(4)),
    ),
    "order in a group": (
        lambda: xm.all_gather(ones(4), groups=SCRAMBLED),
        lambda: xm.all_gather(ones(4)),
    ),
    "sizes": (
        lambda: xm.uneven_all_gather(ones(3), [3, 3, 1, 1], padded=True),
        lambda: xm.uneven_all_gather(ones(3), [3, 1, 3, 1], padded=True),
    ),
    "sizes of an exchange": (
        lambda: xm.uneven_all_to_all(ones(4), [[1, 1, 1, 1]] * 4),
        lambda: xm.uneven_all_to_all(ones(4), [[2, 0, 1, 1]] * 4),
    ),
    "order of calls": (
        lambda: [xm.all_gather(ones(4)), xm.all_reduce("sum", ones(4))],
        lambda: [xm.all_reduce("sum", ones(4)), xm.all_gather(ones(4))],
    ),
    "one call more": (
        lambda: [xm.all_gather(ones(4)), xm.all_gather(ones(4))],
        lambda: [xm.all_gather(ones(4))],
    ),
    "one call less": (
        lambda: [xm.all_gather(ones(4))],
        lambda: [xm.all_gather(ones(4)), xm.all_gather(ones(4))],
    ),
    "a read between two calls": (
        lambda: [xm.all_gather(ones(4)).sum().item(), xm.all_gather(ones(4))],
        lambda: [xm.all_gather(ones(4)), xm.all_gather(ones(4))],
    ),
}
# There one side has no call that could be named: the message says where it ran its graph.
ONE_CALL = {"one call more", "one call less"}


def go_on():
    """Ranks that were told may try again: the next collective is right."""
    return xm.all_reduce("sum", ones(2)).tolist()


def call_different(rank, name):
    this, others = CASES[name]
    try:
        kept = this() if rank == 1 else others()
        torch_xla.sync()
        message = f"no error, {kept}"
    except RanksDisagree as error:
        message = str(error)
    return message, go_on()


@pytest.mark.parametrize("name", CASES)
def test_every_rank_is_told_and_can_go_on(name):
    by_rank = worlds.run(4, call_different, name, timeout_s=40, launch_timeout_s=12)
    lines = [f"test_disagree.py:{call.__code__.co_firstlineno}" for call in CASES[name]]
    for message, after in by_rank:
        assert message == by_rank[0][0], "all are told the same"
        named = [line for line in lines if line in message]
        assert len(named) == 2 or (named and name in ONE_CALL), f"{lines} in: {message}"
        assert message.count("test_disagree.py:") >= 2, message
        assert after == [4.0, 4.0]
    assert worlds.run(4, call_different, "size")[0][1] == [4.0, 4.0]  # and in the next launch


def call_in_a_circle(rank):
    before, after = (rank - 1) % 4, (rank + 1) % 4
    try:
        for peer in (after, before):
            pair = sorted([rank, peer])
            others = [[other] for other in range(4) if other not in pair]
            xm.all_reduce("sum", ones(4), groups=[pair, *others])
        torch_xla.sync()
        message = "no error"
    except RanksDisagree as error:
        message = str(error)
    return message, go_on()


def test_overlapping_groups_in_a_circle():
    [line] = [
        index
        for index, text in enumerate(inspect.getsource(call_in_a_circle).splitlines())
        if "all_reduce" in text
    ]
    line += call_in_a_circle.__code__.co_firstlineno
    for message, after in worlds.run(4, call_in_a_circle, timeout_s=40, launch_timeout_s=12):
        assert "circle" in message
        assert message.count(f"test_disagree.py:{line}") == 4
        assert "rank 0 for group [0,1]" in message
        assert "rank 3 for group [0,3]" in message
        assert after == [4.0, 4.0]


def come_late(rank):
    xm.all_gather(ones(2))
    torch_xla.sync()
    start = time.monotonic()
    if rank == 2:
        time.sleep(4)
    try:
        xm.all_reduce("sum", ones(4)).tolist()
        message = "no error"
    except RanksDisagree as error:
        message = str(error)
    return message, time.monotonic() - start, go_on()


def test_rank_that_does_not_come():
    first = come_late.__code__.co_firstlineno
    by_rank = worlds.run(4, come_late, timeout_s=40, launch_timeout_s=3)
    for rank, (message, seconds, after) in enumerate(by_rank):
        assert "3000 ms" in message
        assert "rank 2 has not come" in message
        assert f"all_gather(dim=0, groups=world) at {__file__}:{first + 1}" in message
        assert 3 <= seconds < 4 if rank != 2 else seconds >= 4
        assert after == [4.0, 4.0]


def leave_early(rank):
    if rank == 3:
        return None
    try:
        xm.all_reduce("sum", ones(4)).tolist()
    except RanksDisagree as error:
        return str(error)
    return "no error"


def test_rank_that_has_ended():
    line = f"test_disagree.py:{leave_early.__code__.co_firstlineno + 4}"
    *told, ended = worlds.run(4, leave_early)
    assert ended is None
    for message in told:
        assert line in message
        assert "rank 3" in message
        assert "has ended without calling it" in message


def reduce_or_be_told(groups=None):
    try:
        return xm.all_reduce("sum", ones(2), groups=groups).tolist()
    except RanksDisagree:
        return "told"


def call_other_groups(rank):
    """Ranks 0 and 2 agree on their group, and rank 1 comes with another than rank 3."""
    results = [reduce_or_be_told([[0, 1], [2, 3]] if rank == 1 else [[0, 2], [1, 3]])]
    if rank in (0, 2):
        results.append(reduce_or_be_told())
    return results, go_on()


def test_ranks_of_a_group_that_agrees_are_told_at_their_next_call():
    by_rank = worlds.run(4, call_other_groups, timeout_s=40, launch_timeout_s=12)
    told_later, told_at_once = ([[2.0, 2.0], "told"], [4.0, 4.0]), (["told"], [4.0, 4.0])
    assert by_rank == [told_later, told_at_once] * 2


def of_the_own_group_only(rank):
    """Groups in which all agree do not wait for the others, nor mind what they do."""
    group = [[0, 1], [2, 3]] if rank < 2 else [[0], [1], [2, 3]]
    return [
        xm.all_reduce("sum", ones(2) + rank, groups=group).tolist() for _ in range(rank // 2 + 1)
    ]


def test_groups_that_do_different_things():
    assert worlds.run(4, of_the_own_group_only) == [[[3.0, 3.0]]] * 2 + [[[7.0, 7.0]] * 2] * 2


# Lists in which ranks 0 and 1 are a group, of five ranks.
ELSEWHERE = [
    [[0, 1]],
    [[0, 1], [2, 3]],
    [[0, 1], [2, 3, 4]],
    [[0, 1], [4, 3, 2]],
    [[0, 1], [2], [3], [4]],
    [[2, 4], [0, 1], [3]],
]
TURNED = [  # the same with [1, 0]
    [group[::-1] if 0 in group else group for group in groups] for groups in ELSEWHERE
]


def of_the_first(x, groups):
    first = next(group for group in groups if 0 in group)[0]
    xm.collective_broadcast([x], first, groups=groups)
    return x


def of_two_rows(x, groups):
    """Of those in a group; the others give none."""
    sizes = [2 * any(rank in group for group in groups) for rank in range(5)]
    return xm.uneven_all_gather(x[: sizes[runtime.global_ordinal()]], sizes, groups=groups)


OF_GROUPS = {
    "all_gather": lambda x, groups: xm.all_gather(x, groups=groups),
    "all_reduce": lambda x, groups: xm.all_reduce("sum", x, groups=groups),
    "average": lambda x, groups: xm.all_reduce("average", x, groups=groups),
    "reduce_scatter": lambda x, groups: xm.reduce_scatter(
        "sum", torch.cat([x] * max(map(len, groups))), groups=groups
    ),
    "all_to_all": lambda x, groups: xm.all_to_all(
        torch.cat([x] * max(map(len, groups))), 0, 0, groups=groups
    ),
    "collective_broadcast": lambda x, groups: of_the_first(x, groups),
    "uneven_all_gather": lambda x, groups: of_two_rows(x, groups),
}
EXPECTED = {
    "all_gather": [1.0, 1.0, 2.0, 2.0],
    "all_reduce": [3.0, 3.0],
    "average": [1.5, 1.5],
    "reduce_scatter": [3.0, 3.0],
    "all_to_all": [1.0, 1.0, 2.0, 2.0],
    "collective_broadcast": [1.0, 1.0],
    "uneven_all_gather": [1.0, 1.0, 2.0, 2.0],
}


def lists_that_differ_elsewhere(rank, op, lists):
    found = []
    for common in lists:
        for own in lists:
            groups = own if rank == 1 else common
            try:
                x = OF_GROUPS[op](ones(2) * (rank + 1), groups)
                found.append(x[:4].tolist())
            except RanksDisagree as error:
                found.append(str(error))
            try:
                assert go_on() == [5.0, 5.0]
            except RanksDisagree as error:  # of a group that agreed
                assert rank > 1, error
                assert go_on() == [5.0, 5.0]
    return found


@pytest.mark.parametrize("lists", [ELSEWHERE, TURNED], ids=["ascending", "turned"])
@pytest.mark.parametrize("op", OF_GROUPS)
def test_lists_that_differ_elsewhere(op, lists):
    """Right values on both ranks of the group, or an error on both: never a wait in XLA."""
    by_rank = worlds.run(5, lists_that_differ_elsewhere, op, lists, timeout_s=100)
    expected = EXPECTED[op]
    if lists is TURNED and op == "collective_broadcast":
        expected = [2.0, 2.0]
    elif lists is TURNED:
        expected = expected[len(expected) // 2 :] + expected[: len(expected) // 2]
    pairs = [(common, own) for common in lists for own in lists]
    outcomes = list(zip(pairs, by_rank[0], by_rank[1], strict=True))
    for (common, own), first, second in outcomes:
        if isinstance(first, str):
            assert first == second and common != own
            assert "Every rank of a group must make the same calls" in first
        else:
            assert first == second == expected
    told = [isinstance(first, str) for _, first, _ in outcomes]
    assert not all(told)
    assert any(told) == (op not in ("all_reduce", "average", "collective_broadcast"))
