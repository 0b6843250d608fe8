"""Which traced collectives each compiled one was: combined, changed, without metadata."""

import dataclasses

from test_hlo_traffic import one

from torch_xla_cc._hlo.instruction import Source
from torch_xla_cc._inspect.matches import matched

ALL = "replica_groups={}"
WRITTEN = "replica_groups=[1,8]<=[8]"


def collective(name, opcode, operands, results, line=0, groups=ALL):
    """Of operands of so many elements, and results."""
    before = "".join(f"  %o{i} = f32[{n}] slice(%x)\n" for i, n in enumerate(operands))
    names = ", ".join(f"%o{i}" for i in range(len(operands)))
    shapes = ", ".join(f"f32[{n}]" for n in results)
    shape = f"({shapes})" if len(results) > 1 else shapes
    made = one(f"{shape} {opcode}({names}), {groups}", before)
    return dataclasses.replace(
        made, source=Source("", name, "train.py", line) if name else made.source
    )


def reduced(name, *sizes, line=0, groups=ALL):
    return collective(name, "all-reduce", sizes, sizes, line, groups)


def numbers(before, after):
    """The places of what each was, and of what is gone."""
    were, gone = matched(before, after)
    place = {id(one): i for i, one in enumerate(before)}
    return [[place[id(one)] for one in was] for was in were], [place[id(one)] for one in gone]


def test_combined_with_the_name_of_one():
    before = [reduced("a", 4, line=i) for i in range(3)] + [reduced("b", 8, line=9)]
    after = [reduced("a", 4, 8, 4, 4, line=0, groups=WRITTEN)]
    assert numbers(before, after) == ([[0, 1, 2, 3]], [])


def test_each_is_first_what_has_its_name():
    before = [reduced("sum", 4, line=1), reduced("max", 4, line=2), reduced("sum", 4, line=3)]
    after = [reduced("sum", 4, 4, line=3), reduced("max", 4, line=2)]
    assert numbers(before, after) == ([[2, 0], [1]], [])


def test_one_vector_of_several():
    before = [reduced("a", n, line=n) for n in (4, 8, 5, 6)]
    assert numbers(before, [reduced("", 17, groups=WRITTEN)]) == ([[0, 1, 2]], [3])
    assert numbers(before, [reduced("a", 19, line=8)]) == ([[1, 2, 3]], [0])
    assert numbers(before, [reduced("", 100)]) == ([[]], [0, 1, 2, 3])


def test_sums_of_everything():
    scatters = [collective("s", "reduce-scatter", [16], [2], line=i) for i in (1, 2)]
    gather = collective("g", "all-gather", [2], [16], 3)
    assert numbers([*scatters, gather], [reduced("", 16, 16, 16)]) == ([[0, 1, 2]], [])
    # In other groups it is another.
    other = collective("s", "reduce-scatter", [16], [2], 1, "replica_groups={{0,1},{2,3}}")
    assert numbers([other], [reduced("", 16)]) == ([[]], [0])


def test_without_a_name_and_of_the_same_opcode():
    scatter = collective("s", "reduce-scatter", [16], [2], 1)
    fusion = collective("", "reduce-scatter", [16], [2], groups=WRITTEN)
    assert numbers([scatter], [fusion]) == ([[0]], [])


def gathered(name, *sizes, line=0):
    return collective(name, "all-gather", sizes, [8 * n for n in sizes], line)


def test_a_list_that_is_taken_apart():
    before = [gathered("g", 4, 4, 2, line=1)]
    parts = [gathered(name, n) for name, n in (("around", 2), ("", 4), ("", 4))]
    assert numbers(before, parts) == ([[0]] * 3, [])
    assert numbers(before, [gathered("g", 4, line=1), *parts[:2]]) == ([[0]] * 3, [])
    # Not all of it, and more than it has.
    assert numbers(before, parts[:2]) == ([[], []], [0])
    assert numbers(before, [*parts, gathered("", 4)]) == ([[0]] * 3 + [[]], [])


def test_parts_of_one_list_are_not_anothers():
    """The first is gone, and the other is apart with its own name."""
    before = [gathered("g", 4, line=1), gathered("g", 4, 2, line=2)]
    after = [gathered("g", 4, line=2), gathered("g", 2, line=2)]
    assert numbers(before, after) == ([[1], [1]], [0])
    assert numbers(before[::-1], after) == ([[0], [0]], [1])
