"""Ranks whose programs have different collectives: told on all of them, before or as they meet."""

import pods
import pytest

from torch_xla_cc._pod.pod_device import agreement, meetings

HLO = """
  %a = f32[4]{0} all-reduce(%x), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=%sum
  ROOT %b = (f32[4]{0}, s32[2,3]{1,0}) all-to-all(%x, %y), replica_groups=[2,2]<=[2,2]T(1,0)
  %c = bf16[8,2]{1,0} all-gather-start(%x), replica_groups={}, dimensions={0}
  %d = bf16[8,2]{1,0} all-gather-done(%c)
  %e = u16[3]{0} collective-permute(%x), source_target_pairs={{0,1},{1,3}}
  %f = f32[] all-reduce(%x), replica_groups={{0},{1},{2},{3}}
"""


def test_what_a_program_meets_in():
    def found(rank):
        of_program = meetings.of_program(HLO, rank, 4)
        return {meeting.group: meeting.what.partition(" ")[2] for meeting in of_program}

    assert found(2) == {
        (2, 3): "all-reduce f32[4]",
        (0, 2): "all-to-all (f32[4], s32[2,3])",
        (0, 1, 2, 3): "all-gather bf16[8,2] dimensions={0}",
    }
    assert found(1) == {
        (0, 1): "all-reduce f32[4]",
        (1, 3): "all-to-all (f32[4], s32[2,3])",
        (0, 1, 2, 3): "all-gather bf16[8,2] dimensions={0}",
        (0, 1, 3): "collective-permute u16[3]",
    }
    assert not meetings.of_program("  %a = f32[4]{0} add(%x, %y)", 0, 4)


def test_meetings_are_counted_by_group():
    begun = meetings.Begun()
    assert [begun.begin(meetings.Meeting((0, 1), what)) for what in "ab"] == [0, 1]
    assert begun.begin(meetings.Meeting((0, 2), "c")) == 0
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
    heard.of.asked(1, place, "h all-reduce")
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
    heard.of.asked(1, place, "h all-reduce")
    assert (heard.asked, heard.agreed) == ([], [(1, place)])
    assert not heard.of._said and not heard.of._waits and not heard.differ


def test_who_asks_when_all_have_answered_waits_for_nobody():
    """Its own answer, to another that asked, overtook its question."""
    heard, place = Heard(), ((0, 1), 0)
    heard.of.asked(0, place, "h all-reduce")
    heard.of.answered(1, place, "h all-reduce")
    heard.of.asked(1, place, "h all-reduce")
    assert heard.agreed == [(0, place), (1, place)]
    assert not heard.of._said and not heard.of._waits and not heard.differ


@pytest.mark.parametrize("asks", [False, True])
def test_who_comes_later_has_another(asks):
    heard, place = Heard(), ((0, 1, 2), 0)
    heard.of.answered(0, place, "h all-reduce")
    (heard.of.asked if asks else heard.of.answered)(1, place, "g all-gather")
    assert len(heard.differ) == 1
    assert "rank 0 has all-reduce; rank 1 has all-gather" in heard.differ[0]
    assert not heard.agreed


@pytest.mark.parametrize("late", [False, True])
def test_one_has_another(late):
    heard, place = Heard(), ((0, 1, 3), 7)
    heard.of.asked(1, place, "h all-reduce")
    heard.of.answered(0, place, None)
    heard.of.answered(3, place, None if late else "g all-gather")
    assert bool(heard.differ) != late
    if late:
        assert heard.agreed == [(1, place)]
        heard.of.answered(3, place, "g all-gather")
    assert heard.differ == [
        "the ranks of group [0,1,3] run programs of different collectives: rank 1 has all-reduce; "
        "rank 3 has all-gather"
    ]


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
        assert "the ranks of group [0,1,2] run programs of different collectives: rank" in error


def test_programs_that_all_know():
    """They are not waited for: what is read before all are told may be wrong, and then all are."""
    sizes = ((4, 4, 2) + (2,) * 100, (4, 4, 2) + (2,) * 100, (4, 4, 2) + (4,) * 100)
    with pods.ranks(3) as ranks:
        found = ranks.run(pods.joined, sums, sizes)
    for done, error in found:
        assert done[:3] == [[18.0] * 4, [18.0] * 4, [18.0] * 2]
        assert len(done) < 103
        assert "the ranks of group [0,1,2] run programs of different collectives: rank" in error
