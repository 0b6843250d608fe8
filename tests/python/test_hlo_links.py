"""What links carry: against routing block by block, and what lowering/model/torus.h says."""

import itertools
import math
import random
from collections import defaultdict
from fractions import Fraction

import pytest
from test_hlo_traffic import one

from torch_xla_cc._hlo import boxes
from torch_xla_cc._hlo.links import busiest, least
from torch_xla_cc._hlo.topology import Axis, Topology, topology_of


def world(topology):
    return math.prod(axis.size for axis in topology.axes)


@pytest.mark.parametrize(
    ("target", "ranks", "kind", "axes"),
    [
        ("tpu:v5e:4x8", 32, "torus", [(4, False), (8, False)]),
        ("tpu:v6e:16x16", 256, "torus", [(16, True), (16, True)]),
        ("spmd:tpu:v5p:2x4x8", 64, "torus", [(2, False), (4, False), (8, False)]),
        ("spmd:tpu:v5p:4x4x8", 128, "torus", [(4, True), (4, True), (8, True)]),
        ("tpu:v4:2x2x1", 4, "torus", [(2, False), (2, False), (1, False)]),
        ("gpu:h100x8", 8, "switch", []),
        ("tpu:v5e:4x8", 16, "ring", [(16, True)]),
        ("tpu:v9:4x8", 32, "ring", [(32, True)]),
        ("cpu", 4, "ring", [(4, True)]),
        ("", 8, "ring", [(8, True)]),
    ],
)
def test_topologies(target, ranks, kind, axes):
    assert topology_of(target, ranks) == Topology(kind, tuple(Axis(*axis) for axis in axes))


def test_ranks_are_counted_along_x_first():
    assert topology_of("tpu:v4:2x2x4", 16).coordinates(13) == (1, 0, 3)


def torus(*sizes, wraps=()):
    return Topology("torus", tuple(Axis(size, axis in wraps) for axis, size in enumerate(sizes)))


def rows_and_columns(x, y):
    everything = (tuple(range(x * y)),)
    rows = tuple(tuple(range(j * x, j * x + x)) for j in range(y))
    columns = tuple(tuple(range(i, x * y, x)) for i in range(x))
    return [everything, rows, columns]


def gathered(groups, topology, order):
    """Over each link, block by block: each of them goes along one axis, to the farthest member on
    either side, from there along the next."""
    load = defaultdict(Fraction)
    for group in groups:
        members = set(map(topology.coordinates, group))
        for source in members:
            has = {source}
            for number in order:
                axis = topology.axes[number]
                for chip in sorted(has):
                    line = {
                        m
                        for m in members
                        if all(m[i] == chip[i] for i in range(len(chip)) if i != number)
                    }
                    places = sorted(m[number] for m in line)
                    if axis.wraps and len(places) == axis.size > 1:
                        # Half of it to those ahead, half to those behind: by turns, of size - 1.
                        for way in (1, -1):
                            for step in range(axis.size):
                                at = (chip[number] + way * step) % axis.size
                                far = axis.size - 1 if step < axis.size - 1 else 0
                                share = Fraction(1, 2) if far else Fraction(0)
                                load[number, chip[:number], chip[number + 1 :], at, way] += share
                    else:
                        for at in range(chip[number], places[-1]):
                            load[number, chip[:number], chip[number + 1 :], at, 1] += 1
                        for at in range(chip[number], places[0], -1):
                            load[number, chip[:number], chip[number + 1 :], at, -1] += 1
                    has |= line
    most = [Fraction(0)] * len(topology.axes)
    for (number, *_), amount in load.items():
        most[number] = max(most[number], amount)
    return tuple(most)


@pytest.mark.parametrize(
    "topology", [torus(2, 4), torus(3, 2), torus(4, 4, wraps=(0, 1)), torus(2, 4, wraps=(1,))]
)
def test_boxes_are_what_routing_gives(topology):
    x, y = (axis.size for axis in topology.axes)
    for groups in [*rows_and_columns(x, y), ((0, 1, x, x + 1),)]:
        sizes = boxes.sides(groups, topology)
        orders = itertools.permutations(range(2))
        routed = {gathered(groups, topology, order) for order in orders}
        assert set(boxes.passed_on(groups, topology, sizes)) == routed


# Of an all_gather of one byte a rank, over the busiest link: tests/lowering/torus_test.cc has some.
LOADS = {
    "tpu:v5e:8x8": Fraction(63, 2),
    "tpu:v5e:4x8": Fraction(31, 2),
    "tpu:v5e:2x4": Fraction(7, 2),
    "tpu:v5p:4x4x4": Fraction(63, 6),
    "tpu:v6e:16x16": Fraction(255, 4),
    "tpu:v5e:1x8": Fraction(7),
    "tpu:v4:2x2x2": Fraction(7, 3),
    "gpu:h100x8": Fraction(7),
}
GATHER = "f32[{0}] all-gather(%x), replica_groups=[1,{1}]<=[{1}], dimensions={{0}}"


@pytest.mark.parametrize("target", LOADS)
def test_the_world_is_gathered_over_all_links(target):
    sizes = target.rpartition(":")[2].removeprefix("h100x")
    ranks = math.prod(map(int, sizes.split("x")))
    topology = topology_of(target, ranks)
    gather = one(GATHER.format(16 * ranks, ranks))
    reduce = one(f"f32[16] all-reduce(%x), replica_groups=[1,{ranks}]<=[{ranks}], to_apply=%sum")
    assert busiest([gather], topology, ranks) == round(64 * LOADS[target])
    assert busiest([reduce], topology, ranks) == round(2 * 64 * LOADS[target] / ranks)


def test_stages_along_the_axes_add_up_to_the_whole():
    """Each half of the data along the axes in another order: as much as one gather over both."""
    topology = torus(4, 4, wraps=(0, 1))
    rows, columns = rows_and_columns(4, 4)[1:]
    stages = []
    for first, second in ((rows, columns), (columns, rows)):
        for groups, count in ((first, 8), (second, 32)):
            text = "{" + ",".join("{" + ",".join(map(str, g)) + "}" for g in groups) + "}"
            gather = f"f32[{4 * count}] all-gather(%y), replica_groups={text}, dimensions={{0}}"
            stages.append(one(gather, f"  %y = f32[{count}] slice(%x)\n"))
    whole = one(GATHER.format(16 * 16, 16))
    assert sum(stage.operand_bytes for stage in stages) == 2 * (32 + 128)
    assert busiest(stages, topology, 16) == busiest([whole], topology, 16) == 64 * 15 // 4


def all_to_all(groups, topology):
    """Over each link, pair by pair."""
    load = defaultdict(Fraction)
    for group in groups:
        for a, b in itertools.permutations(group, 2):
            at, to = list(topology.coordinates(a)), topology.coordinates(b)
            for number, axis in enumerate(topology.axes):
                ways = {1: (to[number] - at[number]) % axis.size}
                ways[-1] = axis.size - ways[1]
                if not axis.wraps:
                    ways = {1: to[number] - at[number], -1: at[number] - to[number]}
                    ways = {way: far for way, far in ways.items() if far >= 0}
                short = min(ways.values())
                chosen = [way for way, far in ways.items() if far == short]
                for way in chosen if short else ():
                    for step in range(short):
                        chip = (*at[:number], (at[number] + way * step) % axis.size)
                        load[(number, chip, *at[number + 1 :], way)] += Fraction(1, len(chosen))
                at[number] = to[number]
    return max(load.values())


@pytest.mark.parametrize("topology", [torus(2, 4), torus(4, 4, wraps=(0, 1)), torus(2, 3, 2)])
def test_all_to_all_is_what_routing_gives(topology):
    ranks = world(topology)
    sizes = [axis.size for axis in topology.axes]
    groups = [
        (tuple(range(ranks)),),
        ((0, 1, ranks - 1),),
        rows_and_columns(sizes[0], ranks // sizes[0])[2],
    ]
    for some in groups:
        text = "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in some) + "}"
        found = one(f"f32[16] all-to-all(%x), replica_groups={text}, dimensions={{0}}")
        assert busiest([found], topology, ranks) == round(
            Fraction(64, len(some[0])) * all_to_all(some, topology)
        )


def test_groups_that_are_no_boxes_and_pairs():
    topology = torus(4, 2)
    ring = one("f32[64] all-gather(%x), replica_groups={{0,1,5,2}}, dimensions={0}")
    # 96 bytes either way between each two of them; 2 to 5 and 2 to 0 both begin from 2 to 1.
    assert busiest([ring], topology, 8) == 2 * 96
    pairs = "f32[16] collective-permute(%x), source_target_pairs={{"
    there, back = (one(pairs + text + "}}") for text in ("0,7},{1,7", "7,0"))
    assert busiest([there], topology, 8) == 128  # from 1 on along x, then at 3 up
    assert busiest([there, back], topology, 8) == 128  # the other direction is another link
    assert busiest([there, there], topology, 8) == 256
    switch = topology_of("gpu:h100x8", 8)
    assert busiest([there, back], switch, 8) == 128
    assert (
        busiest([one("f32[16] collective-broadcast(%x), replica_groups={{0,1}}")], switch, 8) == 64
    )


def test_the_least_is_what_trying_all_cuts_gives():
    numbers = random.Random(7)
    for axes, steps in ((2, 200), (3, 20)):
        for _ in range(5):
            parts = [
                (
                    Fraction(numbers.randint(1, 9)),
                    [tuple(Fraction(numbers.randint(0, 9)) for _ in range(axes)) for _ in range(2)],
                )
                for _ in range(2)
            ]
            tried = min(
                max(
                    sum(
                        float(amount) * (cut * float(first[i]) + (1 - cut) * float(second[i]))
                        for cut, (amount, (first, second)) in zip((a, b), parts, strict=True)
                    )
                    for i in range(axes)
                )
                for a in (i / steps for i in range(steps + 1))
                for b in (i / steps for i in range(steps + 1))
            )
            found = least(parts)
            assert found <= tried + 1e-9
            assert tried - found < 400 / steps
    assert least([]) == 0
