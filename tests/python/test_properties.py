"""Any shapes, groups, dims, dtypes and reduce kinds that go together, against oracle.py.

An example is a batch of calls that the ranks make in one graph. The examples are the same in every
run. They are not shrunk, which would compile for minutes: the message names the call that is wrong.
"""

import effort
import numpy as np
import pytest
import worlds
from hypothesis import strategies as st
from operands import any_bits, exact_values
from oracle import BITWISE, COMPLEX, DTYPES, INTEGERS, Case, differences, issue_all, reduce_kinds

SIZES = st.sampled_from([0, 1, 1, 2, 3, 3, 4, 5])


def split(ranks, sizes):
    """The ranks in groups of those sizes, in order."""
    ends = np.cumsum(sizes)
    return [ranks[end - size : end] for end, size in zip(ends, sizes, strict=True)]


@st.composite
def groups_of(draw, world, unequal):
    """None for the world, or any partition of the ranks; of one size unless `unequal`."""
    if draw(st.integers(0, 3)) == 0:
        return None
    ranks = draw(st.permutations(range(world)))
    if not unequal or draw(st.booleans()):
        size = draw(st.sampled_from([size for size in (1, 2, 4, 8) if size <= world]))
        return split(ranks, [size] * (world // size))
    cuts = draw(st.sets(st.integers(1, world - 1)))
    return split(ranks, np.diff([0, *sorted(cuts), world]).tolist())


@st.composite
def pairs_of(draw, world, least):
    count = draw(st.integers(least, world))
    sources = draw(st.permutations(range(world)))
    targets = draw(st.permutations(range(world)))
    return list(zip(sources[:count], targets[:count], strict=True))


def axis_of(draw, shape):
    return draw(st.integers(-len(shape), len(shape) - 1))


@st.composite
def reduction(draw, dtype, groups):
    kinds = reduce_kinds(dtype)
    if len({*map(len, groups or [[]])}) > 1:
        # Complex division rounds if the size is no power of two; and docs/capabilities.md.
        refused = ["average"] if dtype in COMPLEX else ["xor"] if dtype == "pred" else BITWISE
        kinds = [kind for kind in kinds if kind not in refused]
    kind = draw(st.sampled_from(kinds))
    fields = {"reduce_type": kind, "groups": groups}
    if dtype != "pred":
        scales = [1, 3, 2] if dtype in INTEGERS else [1, 0.5, -2]
        fields["scale"] = draw(st.sampled_from(scales))
    if kind == "premultiplied_sum":
        fields["factor"] = draw(st.sampled_from([1, 2, 3] if dtype in INTEGERS else [1, -1, 0.5]))
    return fields


@st.composite
def cases(draw, world):
    op = draw(
        st.sampled_from(
            [
                "all_gather",
                "all_reduce",
                "reduce_scatter",
                "all_to_all",
                "collective_permute",
                "collective_broadcast",
                "send_recv",
            ]
        )
    )
    dtype = draw(st.sampled_from(list(DTYPES)))
    cut = op in ("reduce_scatter", "all_to_all")
    shape = draw(st.lists(SIZES, min_size=1 if cut else 0, max_size=3))
    groups = draw(groups_of(world, unequal=op in ("all_reduce", "collective_broadcast")))
    members = len(groups[0]) if groups else world
    fields = {"groups": groups}
    if op == "all_gather":
        fields["dim"] = axis_of(draw, shape or [1])
    elif op == "all_reduce":
        fields = draw(reduction(dtype, groups))
    elif op == "reduce_scatter":
        fields = draw(reduction(dtype, groups))
        fields["scatter_dim"] = axis = axis_of(draw, shape)
        shape[axis] *= members
    elif op == "all_to_all":
        fields["split_dimension"] = axis = axis_of(draw, shape)
        fields["concat_dimension"] = axis_of(draw, shape)
        shape[axis] *= members
    elif op == "collective_broadcast":
        position = draw(st.integers(0, min(map(len, groups or [range(world)])) - 1))
        fields["root_ordinal"] = draw(st.sampled_from(groups))[position] if groups else position
    else:
        fields = {"pairs": draw(pairs_of(world, least=op == "send_recv"))}
        if op == "send_recv":
            fields["tag"] = draw(st.integers(0, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if kind := fields.get("reduce_type"):
        inputs = [exact_values(rng, dtype, shape, kind) for _ in range(world)]
    else:
        inputs = [any_bits(rng, dtype, shape) for _ in range(world)]
    return Case(op, inputs, fields)


@pytest.mark.parametrize("world", [2, 4, 8])
def test_batches_of_any_calls(world):
    @effort.for_each(
        40, st.lists(cases(world), min_size=1, max_size=6), phases=effort.WITHOUT_SHRINKING
    )
    def check(batch):
        by_rank = worlds.run(world, issue_all, batch)
        found = []
        for i, case in enumerate(batch):
            bitwise = "reduce_type" not in case.fields
            found += differences(case, [results[i] for results in by_rank], bitwise)
        assert not found, "\n".join(found[:8])

    check()
