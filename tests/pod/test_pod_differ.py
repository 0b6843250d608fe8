"""Ranks whose programs have different collectives: told on all of them, before or as they meet."""

import pods
import pytest

from torch_xla_cc._pod.pod_device import agreement, meetings
from torch_xla_cc._pod.pod_device.errors import Refused

HLO = """HloModule m, is_scheduled=true

%larger (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] maximum(%a, %b)
}

%once (x: u16[3]) -> u16[3] {
  ROOT %e = u16[3]{0} collective-permute(%x), source_target_pairs={{0,1},{1,3}}
}

%late (x: f32[4]) -> f32[2] {
  ROOT %r = f32[2]{0} reduce-scatter(%x), replica_groups={{2,3}}, dimensions={0}, to_apply=%larger
}

ENTRY %main (x: f32[4], y: f32[4]) -> f32[4] {
  %a = f32[4]{0} all-reduce(%x), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=%larger
  ROOT %b = (f32[4]{0}, s32[2,3]{1,0}) all-to-all(%x, %y), replica_groups=[2,2]<=[2,2]T(1,0)
  %c = bf16[8,2]{1,0} all-gather-start(%x), replica_groups={}, dimensions={0}
  %d = bf16[8,2]{1,0} all-gather-done(%c)
  %p = u16[3]{0} call(%x), to_apply=%once, metadata={op_name="call.1/all_gather/x.py"}
  %l = f32[2]{0} call(%x), to_apply=%late
  %f = f32[] all-reduce(%x), replica_groups={{0},{1},{2},{3}}
  %g = f32[4]{0} all-to-all(%y), replica_groups={{0,3}}, metadata={op_name="OURS"}
}
""".replace("OURS", "call.9/reduce_scatter(kind=sum, groups=[[0,3]], dim=0) native")


def test_what_a_program_meets_in():
    def found(rank):
        calls = meetings.of_program(HLO, rank, 4)
        return {group: [calls.words[h] for h in hashes] for group, hashes in calls.groups}

    assert found(2) == {
        (2, 3): ["all-reduce f32[4] maximum", "reduce-scatter f32[2] dimensions={0} maximum"],
        (0, 2): ["all-to-all (f32[4], s32[2,3])"],
        (0, 1, 2, 3): ["all-gather bf16[8,2] dimensions={0}"],
    }
    assert found(1) == {
        (0, 1): ["all-reduce f32[4] maximum"],
        (1, 3): ["all-to-all (f32[4], s32[2,3])"],
        (0, 1, 2, 3): ["all-gather bf16[8,2] dimensions={0}"],
        (0, 1, 3): ["collective-permute u16[3] source_target_pairs={{0,1},{1,3}}"],
    }
    assert found(0)[0, 3] == ["all-to-all f32[4] of reduce_scatter(kind=sum, dim=0)"]
    assert meetings.of_program(HLO, 2, 4).is_impatient()
    assert not meetings.of_program(HLO, 1, 4).is_impatient()
    assert meetings.has_collectives(HLO)
    add = 'ROOT %a = f32[4]{0} add(%x, %x), metadata={op_name="all-reduce("}'
    local = f"ENTRY %m (x: f32[4]) -> f32[4] {{\n  {add}\n}}"
    assert not meetings.of_program(local, 0, 4).groups
    assert not meetings.has_collectives(local)


def test_who_sends_to_whom_in_it():
    def found(rank):
        calls = meetings.of_program(HLO, rank, 4)
        return {link: [calls.words[h].split()[0] for h in hashes] for link, hashes in calls.links}

    assert found(1) == {
        (1, 3): ["all-to-all", "collective-permute"],
        (3, 1): ["all-to-all"],
        (0, 1): ["collective-permute"],
    }
    assert found(2) == {(0, 2): ["all-to-all"], (2, 0): ["all-to-all"]}
    assert found(3)[1, 3] == found(1)[1, 3]


def test_what_is_said_of_it():
    calls = meetings.of_program(HLO, 2, 4)
    assert meetings.calls_of(calls.text()) == calls
    assert calls.links
    assert calls.total() == 4
    assert calls.key() == meetings.of_program(HLO, 2, 4).key()
    assert calls.key() != meetings.of_program(HLO, 3, 4).key()


class Heard:
    """What an agreement has said, of programs that are texts: a letter for each collective."""

    def __init__(self, group=(0, 1, 3), most=meetings.PROGRAMS):
        self.group = group
        self.pinged, self.agreed, self.differ = [], [], []
        self.of = agreement.Agreement(
            lambda *what: self.pinged.append(what), self.agreed.append, self.differ.append, most
        )

    def begins(self, rank, letters, asks="", group=None, *, known=False, links=()):
        words = dict(zip(letters, [f"call {letter}" for letter in letters], strict=True))
        row = tuple(letters)
        calls = meetings.Calls(((group or self.group, row),), words, tuple((k, row) for k in links))
        self.of.begins(rank, calls.key(), None if known else calls, asks)


def test_of_programs_the_last_are_kept():
    """Each rank says again what it has not run for long; others may have, in an order of theirs."""
    heard = Heard(group=(0, 1), most=2)
    for program in "abc":
        heard.begins(0, program)
    with pytest.raises(KeyError):  # a rank keeps the same, so none does this
        heard.begins(0, "a", known=True)
    for program in "abcaba":
        heard.begins(1, program)
    heard.begins(1, "b", known=True)
    heard.begins(0, "a")
    heard.begins(0, "c", known=True)
    assert heard.differ == [
        "the ranks of group [0,1] run programs of different collectives, the first of which is "
        "number 5: rank 0 has call c; rank 1 has call b"
    ]
    ours, theirs = meetings.Recent(3), {}
    for key in "abcadbeeafgabcbb":
        known, gone = ours.use(key)
        assert known == (key in theirs)
        theirs[key] = None
        theirs.pop(gone, None)
        assert len(theirs) <= 3


def test_who_asks_waits_for_what_others_have_begun():
    heard = Heard()
    heard.begins(1, "ab", "asks")
    assert heard.pinged == [(0, 0), (3, 0)]
    heard.of.answered(0, 0)
    assert not heard.agreed
    heard.of.answered(3, 0)
    assert heard.agreed == [1]
    heard.begins(0, "ab", "asks")  # it waits for the rank alone that has not begun so much
    assert heard.pinged[2:] == [(3, 1)]
    heard.of.answered(3, 1)
    heard.of.answered(3, 1)
    heard.begins(3, "ab", "asks")
    assert heard.pinged[3:] == []
    assert heard.agreed == [1, 0, 3]
    assert not heard.differ


@pytest.mark.parametrize("cut", [("abcde",), ("a", "bc", "de"), ("ab", "cde"), ("abcd", "e")])
def test_programs_that_are_cut_elsewhere(cut):
    heard = Heard()
    for program in ("abc", "de"):
        heard.begins(0, program)
    for program in cut:
        heard.begins(1, program)
        heard.begins(3, program)
    assert not heard.differ
    assert not heard.of._rows[heard.group]._kept  # all have begun all
    heard.begins(1, "x")
    heard.begins(3, "y")
    assert "number 6: rank 1 has call x; rank 3 has call y" in heard.differ[0]


def test_what_differs_is_told_with_who_has_it():
    heard = Heard()
    heard.begins(0, "abc")
    heard.begins(1, "a")
    heard.begins(3, "ax")
    assert heard.differ == [
        "the ranks of group [0,1,3] run programs of different collectives, the first of which is "
        "number 2: rank 0 has call b; rank 3 has call x"
    ]
    heard = Heard()
    heard.begins(0, "ab")
    heard.begins(3, "ab")
    heard.begins(1, "ac", "asks")
    assert heard.differ[0].endswith("rank 0 has call b; rank 1 has call c; rank 3 has call b")
    assert not heard.agreed


def test_what_was_said_once_is_known():
    heard = Heard((0, 1))
    for time in range(3):
        heard.begins(0, "ab", known=time > 0)
        heard.begins(1, "ab", known=True)
    assert not heard.differ


def test_groups_have_rows_of_their_own():
    heard = Heard()
    heard.begins(0, "a", group=(0, 1))
    heard.begins(0, "b", group=(0, 3))
    heard.begins(3, "b", group=(0, 3))
    heard.begins(1, "a", group=(0, 1))
    assert not heard.differ
    assert heard.of.behind(0) == []
    heard.begins(0, "a", group=(0, 1))
    assert heard.of.behind(0) == [1]
    assert heard.of.behind(1) == []


def test_messages_of_two_groups_from_one_rank_to_another():
    """They come in the order in which they are sent, of whichever group they are."""
    pair, ring = (0, 1), [(0, 1), (1, 3), (3, 0)]

    def begun():
        heard = Heard()
        heard.begins(0, "a", group=pair, links=[pair])
        for rank in 0, 3:
            heard.begins(rank, "b", links=[link for link in ring if rank in link])
        return heard

    heard = begun()
    heard.begins(1, "a", "asks", group=pair, links=[pair])
    heard.begins(1, "b", "asks", links=ring[:2])
    assert not heard.differ
    assert heard.agreed == [1, 1]
    assert not any(row._kept for row in heard.of._links.values())
    heard = begun()
    heard.begins(1, "b", "asks", links=ring[:2])
    assert heard.differ == [
        "the collectives in which rank 0 sends to rank 1 differ, the first of which is "
        "number 1: rank 0 has call a; rank 1 has call b"
    ]
    assert not heard.agreed


def test_who_awaits_all_waits_until_they_have_come():
    heard = Heard((0, 1))
    heard.begins(0, "ab", "awaits")
    assert not heard.pinged
    assert not heard.agreed
    heard.begins(1, "a", "awaits")
    assert sorted(heard.agreed) == [0, 1]


def test_one_that_has_ended_is_not_waited_for():
    heard = Heard()
    for rank in heard.group:
        heard.begins(rank, "a")
    heard.of.ended(3)
    assert not heard.differ
    heard.begins(1, "b", "asks")
    assert heard.differ == ["rank 3 has ended, and others run a collective with it"]
    heard = Heard()
    heard.begins(0, "a")
    heard.of.ended(1)
    assert heard.differ == ["rank 1 has ended, and others run a collective with it"]


def sums(rank, sizes):
    import torch

    from torch_xla_cc import xla_model as xm

    done = []
    try:
        for size in sizes[rank]:
            x = torch.full((size,), rank + 5.0).to("xla")
            done.append(xm.all_reduce("sum", x).tolist())
    except RuntimeError as error:
        return done, str(error)
    return done, ""


@pytest.mark.parametrize(
    "sizes",
    [
        ((4,), (5,), (6,)),
        ((4, 5), (4, 4), (4, 4)),  # two have run it before, and do not ask
        ((4, 4), (4, 5), (4, 4)),
    ],
)
def test_sizes_that_differ(sizes):
    with pods.ranks(3) as ranks:
        found = ranks.run(pods.joined, sums, sizes)
    same = next(i for i, of in enumerate(zip(*sizes, strict=True)) if len(set(of)) > 1)
    for done, error in found:
        assert done == [[18.0] * size for size in sizes[0][:same]]
        assert "the ranks of group [0,1,2] run programs of different collectives" in error


def test_programs_that_all_know():
    """They are not waited for: what is read before all are told may be wrong, and then all are."""
    sizes = ((4, 4, 2) + (2,) * 100, (4, 4, 2) + (2,) * 100, (4, 4, 2) + (4,) * 100)
    with pods.ranks(3) as ranks:
        found = ranks.run(pods.joined, sums, sizes)
    for done, error in found:
        # Another may come to what differs before this one has read the last of what does not.
        assert done[:3] == [[18.0] * 4, [18.0] * 4, [18.0] * 2][: len(done)]
        assert len(done) < 103
        assert "the ranks of group [0,1,2] run programs of different collectives" in error


def each_its_own(rank, what):
    """What is not the same on two ranks, one after the other."""
    import torch

    from torch_xla_cc import xla_model as xm

    x = torch.full((4,), rank + 1.0).to("xla")
    calls = {
        "kind": lambda: xm.all_reduce("max" if rank else "sum", x),
        "kind of ours": lambda: xm.reduce_scatter("max" if rank else "sum", x, 1.0, 0, 2),
        "pairs": lambda: xm.collective_permute(x, [[1, 0]] if rank else [[0, 1]]),
    }
    try:
        found = calls[what]().tolist()
        if what == "pairs":  # the first waits for nobody: it is told in what it calls next
            found = xm.all_reduce("sum", x).tolist()
        return found
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("what", ["kind", "kind of ours", "pairs"])
def test_calls_that_differ(what):
    with pods.ranks(2) as ranks:
        for error in ranks.run(pods.joined, each_its_own, what):
            assert "the ranks of group [0,1] run programs of different collectives" in error


def crosses(rank, other, known):
    """A permute of two ranks and what is of three, in other orders on two of them."""
    import torch
    import torch_xla

    from torch_xla_cc import xla_model as xm

    x = torch.full((4,), rank + 1.0).to("xla")
    y = torch.arange(12.0).to("xla") + 100 * rank
    calls = {
        "pair": lambda: xm.collective_permute(x, [[0, 1]]),
        "permute": lambda: xm.collective_permute(y[:4], [[0, 1], [1, 2], [2, 0]]),
        "all_to_all": lambda: xm.all_to_all(y, 0, 0, 3),
        "all_gather": lambda: xm.all_gather(y),
    }

    def both(order):
        found = []
        for name in order:
            if name != "pair" or rank < 2:
                found.append(calls[name]())
                torch_xla.sync(wait=True)
        return [each.tolist() for each in found]

    try:
        before = [both(["pair", other])] if known else []
        found = both([other, "pair"] if rank == 1 else ["pair", other])
        both([other])  # who only sends may not have heard
        return [*before, found]
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("other", ["permute", "all_to_all"])
def test_messages_that_cross(other, known):
    with pods.ranks(3) as ranks:
        for error in ranks.run(pods.joined, crosses, other, known):
            assert "the collectives in which rank 0 sends to rank 1 differ" in error
            assert "[0,1]" in error or "{{0,1}}" in error


def test_what_sends_no_messages_may_cross_them():
    with pods.ranks(3) as ranks:
        first, second, third = ranks.run(pods.joined, crosses, "all_gather", True)
    gathered = [i + 100.0 * rank for rank in range(3) for i in range(12)]
    assert first == [[[0.0] * 4, gathered]] * 2
    assert second == [[[1.0] * 4, gathered], [gathered, [1.0] * 4]]
    assert third == [[gathered]] * 2


@pytest.mark.parametrize("always", [True, False])
def test_groups_that_mpi_cannot_tell_apart(always):
    call = "call(x), to_apply=a" if always else "conditional(p, x, x), branch_computations={%a, %b}"
    text = f"""
%a (x: f32[]) -> f32[] {{
  ROOT %r = f32[] all-reduce(%x), replica_groups={{{{0,2}}}}, to_apply=%add
}}

ENTRY %main (x: f32[]) -> f32[] {{
  %y = f32[] {call}
  ROOT %r = f32[] all-reduce(%y), replica_groups={{{{0,2,1}}}}, to_apply=%add
}}
"""
    assert meetings.cliques(text, 1, 3) == ((0, 2, 1),)
    if always:
        assert meetings.cliques(text, 2, 3) == ((0, 2), (0, 2, 1))
    else:
        with pytest.raises(Refused, match="XLA does not say which it means"):
            meetings.cliques(text, 2, 3)
