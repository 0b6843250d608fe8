"""Ranks whose programs have different collectives: told on all of them, before or as they meet."""

import pods
import pytest

from torch_xla_cc._pod.pod_device import agreement, meetings

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
        of_program = meetings.of_program(HLO, rank, 4)
        return {meeting.group: meeting.what.partition(" ")[2] for meeting in of_program}

    assert found(2) == {
        (2, 3): "all-reduce f32[4] maximum; reduce-scatter f32[2] dimensions={0} maximum",
        (0, 2): "all-to-all (f32[4], s32[2,3])",
        (0, 1, 2, 3): "all-gather bf16[8,2] dimensions={0}",
    }
    assert found(1) == {
        (0, 1): "all-reduce f32[4] maximum",
        (1, 3): "all-to-all (f32[4], s32[2,3])",
        (0, 1, 2, 3): "all-gather bf16[8,2] dimensions={0}",
        (0, 1, 3): "collective-permute u16[3] source_target_pairs={{0,1},{1,3}}",
    }
    assert found(0)[0, 3] == "all-to-all f32[4] of reduce_scatter(kind=sum, dim=0)"
    awaits = {meeting.group: meeting.awaits for meeting in meetings.of_program(HLO, 2, 4)}
    assert awaits == {(2, 3): True, (0, 2): False, (0, 1, 2, 3): False}
    assert meetings.has_collectives(HLO)
    add = 'ROOT %a = f32[4]{0} add(%x, %x), metadata={op_name="all-reduce("}'
    local = f"ENTRY %m (x: f32[4]) -> f32[4] {{\n  {add}\n}}"
    assert not meetings.of_program(local, 0, 4)
    assert not meetings.has_collectives(local)


def test_meetings_are_counted_by_group():
    begun = meetings.Begun()
    assert [begun.begin(meetings.Meeting((0, 1), what, False)) for what in "ab"] == [0, 1]
    assert begun.begin(meetings.Meeting((0, 2), "c", False)) == 0
    assert [begun.at((0, 1), i) for i in range(3)] == ["a", "b", None]


class Heard:
    def __init__(self):
        self.asked, self.agreed, self.differ = [], [], []
        self.of = agreement.Agreement(
            lambda *what: self.asked.append(what),
            lambda *what: self.agreed.append(what),
            self.differ.append,
        )


def test_all_have_the_same():
    heard, place = Heard(), ((0, 1, 3), 7)
    heard.of.asked(1, place, "h all-reduce", False)
    assert heard.asked == [(0, place), (3, place)]
    heard.of.answered(0, place, None)
    assert not heard.agreed
    heard.of.answered(3, place, "h all-reduce")
    assert heard.agreed == [(1, place)]
    heard.of.answered(0, place, "h all-reduce")
    heard.of.answered(0, place, "h all-reduce")  # as it runs it, and because it was asked
    assert not heard.of._said and not heard.of._waits and not heard.differ


def test_who_asks_last_waits_for_nobody():
    heard, place = Heard(), ((0, 1), 0)
    heard.of.answered(0, place, "h all-reduce")
    heard.of.asked(1, place, "h all-reduce", False)
    assert (heard.asked, heard.agreed) == ([], [(1, place)])
    assert not heard.of._said and not heard.of._waits and not heard.differ


def test_who_asks_when_all_have_answered_waits_for_nobody():
    """Its own answer, to another that asked, overtook its question."""
    heard, place = Heard(), ((0, 1), 0)
    heard.of.asked(0, place, "h all-reduce", False)
    heard.of.answered(1, place, "h all-reduce")
    heard.of.asked(1, place, "h all-reduce", False)
    assert heard.agreed == [(0, place), (1, place)]
    assert not heard.of._said and not heard.of._waits and not heard.differ


@pytest.mark.parametrize("asks", [False, True])
def test_who_comes_later_has_another(asks):
    heard, place = Heard(), ((0, 1, 2), 0)
    heard.of.answered(0, place, "h all-reduce")
    if asks:
        heard.of.asked(1, place, "g all-gather", False)
    else:
        heard.of.answered(1, place, "g all-gather")
    assert len(heard.differ) == 1
    assert "rank 0 has all-reduce; rank 1 has all-gather" in heard.differ[0]
    assert not heard.agreed


@pytest.mark.parametrize("late", [False, True])
def test_one_has_another(late):
    heard, place = Heard(), ((0, 1, 3), 7)
    heard.of.asked(1, place, "h all-reduce", False)
    heard.of.answered(0, place, None)
    heard.of.answered(3, place, None if late else "g all-gather")
    assert bool(heard.differ) != late
    if late:
        assert heard.agreed == [(1, place)]
        heard.of.answered(3, place, "g all-gather")
    assert heard.differ == [
        "the ranks of group [0,1,3] run programs of different collectives, the first of which is "
        "number 1: rank 1 has all-reduce; rank 3 has all-gather"
    ]


def test_who_awaits_all_is_not_content_with_later():
    heard, place = Heard(), ((0, 1), 0)
    heard.of.asked(0, place, "h all-reduce", True)
    heard.of.answered(1, place, None)
    assert not heard.agreed
    heard.of.asked(1, place, "h all-reduce", True)
    assert sorted(heard.agreed) == [(0, place), (1, place)]
    assert not heard.of._said and not heard.of._waits and not heard.differ


def test_words_that_are_cut_differently_are_the_same():
    heard, place = Heard(), ((0, 1), 0)
    heard.of.asked(0, place, "h all-reduce; ", False)
    heard.of.answered(1, place, "h all-reduce;")
    assert heard.agreed == [(0, place)]
    assert not heard.differ


def test_words_of_what_was_said_before():
    heard, group = Heard(), (0, 1)
    for rank in group:
        heard.of.answered(rank, (group, 0), "h all-reduce; all-gather")
        heard.of.answered(rank, (group, 1), "g all-reduce; all-to-all; all-gather")
    heard.of.answered(0, (group, 2), "h")
    heard.of.answered(1, (group, 2), "g")
    assert heard.differ[0].endswith("number 2: rank 0 has all-gather; rank 1 has all-to-all")
    heard.of.answered(0, (group, 3), "h")
    heard.of.answered(1, (group, 3), "i all-reduce; all-gather")
    assert heard.differ[1].endswith("of which the first 2 are the same")


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
        return calls[what]().tolist()
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("what", ["kind", "kind of ours", "pairs"])
def test_calls_that_differ(what):
    with pods.ranks(2) as ranks:
        for error in ranks.run(pods.joined, each_its_own, what):
            assert "the ranks of group [0,1] run programs of different collectives" in error
