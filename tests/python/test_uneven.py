"""The uneven ops: what they give, against oracle.py, on 2, 3, 4, 5 and 8 virtual CPU devices.

Data movement is compared bit by bit on operands of any bits. What fills up an operand that is
passed as the node takes it is NaN, infinite or just anything, and must be nowhere in the results.
"""

import contextlib
import itertools

import effort
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
import torch_xla
import worlds
from operands import any_bits, exact_values
from oracle import (
    BITWISE,
    COMPLEX,
    DTYPES,
    Case,
    differences,
    grouped,
    issue_all,
    meaning,
    numpy_dtype,
    put,
    reduce_kinds,
    rows_of,
    take_all,
)

from torch_xla_cc import _C, lowering_for
from torch_xla_cc import xla_model as xm

WORLDS = (2, 3, 4, 5, 8)
OPS = ("uneven_all_gather", "uneven_reduce_scatter", "uneven_all_to_all")


def forms(world):
    """Groups: the world, reversed, equal, unequal, and some ranks in none."""
    ranks = list(range(world))
    found = [None, [ranks[::-1]], [ranks[1:], ranks[:1]], [ranks[1:]]]
    if world % 2 == 0:
        found += [[ranks[::2], ranks[1::2]], [[rank + 1, rank] for rank in ranks[::2]]]
    if world > 3:
        found += [[[3, 1], [0, 2]], [[2, 0, 3], [1]]]
    return found


def size_forms(rng, world):
    """Sizes: even, random with zeros, one that has nearly all, none but one, one of nothing."""
    skewed = [1] * world
    skewed[rng.integers(world)] = 20
    single = [0] * world
    single[rng.integers(world)] = 3
    return [[2] * world, [int(n) for n in rng.integers(0, 5, world)], skewed, single, [0] * world]


def matrices(rng, world, groups):
    """Sizes of an exchange: even, random, one pair with nearly all, a shift, none."""
    together = np.zeros((world, world), int)
    for group in groups or [range(world)]:
        together[np.ix_(list(group), list(group))] = 1
    skewed = np.ones((world, world), int)
    skewed[rng.integers(world), rng.integers(world)] = 20
    shift = np.roll(np.eye(world, dtype=int), 1, axis=1) * 4
    found = [2 * skewed**0, rng.integers(0, 4, (world, world)), skewed, shift, 0 * skewed]
    return [(sizes * together).tolist() for sizes in found]


RESTS = [(), (3,), (2, 1, 2)]
NOT_ELSEWHERE = ("bf16", "f16", "f8e5m2", "f8e4m3fn", "c128")


def quiet(values):
    """With one NaN only, where XLA:CPU may quieten others (docs/spec.md, "Numerics")."""
    if values.dtype in (numpy_dtype("bf16"), numpy_dtype("f8e5m2")):
        values[np.isnan(values)] = np.nan
    return values


def last_place(case, wanted):
    """How far results may be off: XLA multiplies by the reciprocal of a number of ranks."""
    if case.fields.get("reduce_type") != "average" or np.issubdtype(wanted.dtype, np.integer):
        return None
    return np.spacing(np.abs(wanted))


def case_of(op, dtype, rng, sizes, groups, shape, kind=None):
    """One call, on rows of that shape."""
    fields = {"sizes": sizes, "groups": groups}
    rows = [rows_of(op, sizes, groups, rank) for rank in range(len(sizes))]
    if op != "uneven_reduce_scatter":
        return Case(op, [quiet(any_bits(rng, dtype, (n, *shape))) for n in rows], fields)
    # Dividing a complex number by 3 rounds.
    kind = "sum" if kind == "average" and dtype in COMPLEX else kind
    fields["reduce_type"] = kind
    fields |= {"factor": 2, "scale": 2} if kind == "premultiplied_sum" else {}
    return Case(op, [exact_values(rng, dtype, (n, *shape), kind) for n in rows], fields)


def cases_of(op, world, dtype, rng):
    """One for each form of groups and of sizes; of the reductions, one kind after the other."""
    kinds = reduce_kinds(dtype)
    cases = []
    for groups in forms(world):
        if op == "uneven_all_to_all":
            found = matrices(rng, world, groups)
        else:
            found = [grouped(sizes, groups) for sizes in size_forms(rng, world)]
        for sizes in found:
            number = len(cases)
            kind = kinds[number % len(kinds)]
            cases.append(case_of(op, dtype, rng, sizes, groups, RESTS[number % 3], kind))
    return cases


@st.composite
def any_case(draw, world, target):
    """Any op, type, groups (of any sizes, ranks in none), sizes and shape of rows.

    What is lowered for another target runs here where XLA:CPU has its instructions, and does not
    change bits in them: not of narrow floats, of which it makes concatenations in its all-to-all.
    """
    op = draw(st.sampled_from(OPS))
    dtypes = [dtype for dtype in DTYPES if target is None or dtype not in NOT_ELSEWHERE]
    dtype = draw(st.sampled_from(dtypes))
    kinds = [kind for kind in reduce_kinds(dtype) if target is None or kind not in BITWISE]
    ranks = draw(st.permutations(range(world)))
    cuts = [at for at in range(1, world) if draw(st.booleans())]
    lists = [list(ranks[a:b]) for a, b in itertools.pairwise([0, *cuts, world])]
    groups = draw(st.sampled_from([None, lists, lists, lists[: max(1, len(lists) - 1)]]))
    number = st.integers(0, 6)
    if op == "uneven_all_to_all":
        sizes = [[0] * world for _ in range(world)]
        for group in groups or [range(world)]:
            for i, j in itertools.product(group, group):
                sizes[i][j] = draw(number)
    else:
        sizes = grouped([draw(number) for _ in range(world)], groups)
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return case_of(op, dtype, rng, sizes, groups, shape, draw(st.sampled_from(kinds)))


def call_padded(rank, cases, target=None):
    """All calls in one graph, on operands that are filled up with anything.

    Lowered by the fallbacks for a target: an HLO module means the same everywhere, and ranks that
    share one executable, as they do behind an ordinary collective, need no channel to meet.
    """
    rng = np.random.default_rng(rank)
    world = len(cases[0].inputs)
    together = torch.ones(1, device=torch_xla.device())
    results = []
    for case in cases:
        own = case.inputs[rank]
        dtype = next(name for name in DTYPES if numpy_dtype(name) == own.dtype)
        most = max(map(len, case.inputs))
        junk = any_bits(rng, dtype, (most - len(own), *own.shape[1:]))
        fields = dict(case.fields)
        kind = [fields.pop("reduce_type")] if "reduce_type" in fields else []
        operand = put(np.concatenate([own, junk]))
        with contextlib.ExitStack() as stack:
            if target is not None:
                stack.enter_context(lowering_for(target, world))
                stack.callback(_C.set_forced_rule, None)
                _C.set_forced_rule("fallback")
            results.append(getattr(xm, case.op)(*kind, operand, **fields, padded=True))
    *taken, ones = take_all([*results, xm.all_reduce(xm.REDUCE_SUM, together)])
    assert ones.tolist() == [world]
    return taken


def check(world, cases, function=call_padded, *rest):
    """Bit by bit but for reductions, whose zeros have either sign; zeros are behind the rows."""
    found = []
    for batch in range(0, len(cases), 10):
        by_rank = worlds.run(world, function, cases[batch : batch + 10], *rest, timeout_s=200)
        for i, case in enumerate(cases[batch : batch + 10]):
            results = [results[i] for results in by_rank]
            wanted = meaning(case)
            most = max(map(len, wanted))
            for rank, exact in enumerate(wanted):
                if function is call_padded:
                    behind = results[rank][len(exact) :]
                    if behind.tobytes() != bytes(behind.nbytes) or len(results[rank]) != most:
                        found.append(f"rank {rank} of {case}: {len(results[rank])} rows, {behind}")
                    results[rank] = results[rank][: len(exact)]
            allowed = [last_place(case, exact) for exact in wanted]
            exactly = any(places is None for places in allowed)
            found += differences(
                case,
                results,
                bitwise="reduce_type" not in case.fields,
                tolerance=None if exactly else allowed,
            )
    assert not found, "\n".join([f"{len(found)} wrong results", *found[:8]])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("world", WORLDS)
def test_all_forms(world, op):
    check(world, cases_of(op, world, "f32", np.random.default_rng(world)))


def take_away(rank, target):
    """Instructions that XLA:CPU does not have, and fallbacks might be built of."""
    ops = ["uneven_all_to_all", "collective_broadcast"] if rank == 0 else []
    return [_C.register_capability(target, op, [], [], [], False, "not here") for op in ops]


def give_back(rank, handles):
    for handle in handles[rank]:
        assert _C.unregister_capability(handle)


@contextlib.contextmanager
def without_what_xla_cpu_lacks(world, target):
    if target is None:
        yield
        return
    handles = worlds.run(world, take_away, target)
    try:
        yield
    finally:
        worlds.run(world, give_back, handles)


@pytest.mark.parametrize("target", [None, "tpu:v5e", "gpu:h100"])
@pytest.mark.parametrize("world", WORLDS)
def test_any_calls(world, target):
    @effort.for_each(
        4,
        st.lists(any_case(world, target), min_size=6, max_size=10),
        phases=effort.WITHOUT_SHRINKING,
    )
    def run(cases):
        check(world, cases, call_padded, target)

    with without_what_xla_cpu_lacks(world, target):
        run()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("target", ["tpu:v5e", "gpu:h100"])
@pytest.mark.parametrize("world", [3, 4])
def test_fallbacks_of_other_devices(world, target, op):
    cases = cases_of(op, world, "f32", np.random.default_rng(world))
    with without_what_xla_cpu_lacks(world, target):
        check(world, cases[::2], call_padded, target)


# Rows of 1 MiB, so that bytes count for more than instructions: (target, ranks, op, sizes, the
# instructions that it becomes).
MIB = 1 << 18
LARGE = {
    "gather balanced": ("cpu", 4, OPS[0], [3, 4, 4, 4], ["all-gather"]),
    "gather skewed": ("cpu", 4, OPS[0], [1, 9, 0, 0], ["all-reduce"]),
    "scatter balanced": ("tpu:v5e", 4, OPS[1], [3, 4, 4, 4], ["reduce-scatter"]),
    "scatter skewed": ("cpu", 4, OPS[1], [1, 9, 0, 1], ["all-reduce"]),
    "exchange balanced": ("tpu:v5e", 4, OPS[2], [[1] * 4] * 4, ["all-to-all"]),
    "exchange of one by permutes": (
        "tpu:v5e",
        4,
        OPS[2],
        [[1, 0, 0, 0], [1, 0, 5, 1], [0, 0, 1, 0], [0, 1, 0, 0]],
        ["collective-permute"] * 3,
    ),
    "exchange of one by pairs": (
        "cpu",
        4,
        OPS[2],
        [[0, 0, 0, 1], [0, 0, 9, 0], [0, 3, 1, 0], [0, 0, 0, 0]],
        ["all-gather"],
    ),
    "exchange of one by a sum": (
        "cpu",
        3,
        OPS[2],
        [[0, 9, 0], [0, 0, 1], [0, 0, 0]],
        ["all-reduce"],
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_each_way(name):
    target, world, op, sizes, opcodes = LARGE[name]
    rng = np.random.default_rng(1)
    rows = [rows_of(op, sizes, None, rank) for rank in range(world)]
    fields = {"sizes": sizes}
    numbers = [sizes]
    if op == "uneven_reduce_scatter":
        fields["reduce_type"] = "sum"
        numbers = ["sum", 1.0, 1.0, sizes]
    with lowering_for(target, world):
        _C.set_forced_rule("fallback")
        try:
            described = getattr(_C, f"lower_{op}")([(11, [max(rows), MIB])], *numbers, None)
        finally:
            _C.set_forced_rule(None)
    assert described["opcodes"] == opcodes, described["wire_bytes"]
    inputs = [exact_values(rng, "f32", (n, MIB), "sum") for n in rows]
    check(world, [Case(op, inputs, fields)], call_padded, None if target == "cpu" else target)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != "f32"])
@pytest.mark.parametrize("op", OPS)
def test_all_dtypes(op, dtype):
    number = list(DTYPES).index(dtype)
    for world in (3, 4):
        cases = cases_of(op, world, dtype, np.random.default_rng(number))
        check(world, cases[number % 5 :: 5])


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("world", [2, 4, 5])
def test_own_rows_alone(world, op):
    """Each rank passes what it has, and gets what it gets: the programs differ."""
    for number, dtype in enumerate(["f32", "bf16", "f8e4m3fn", "c64", "pred"]):
        cases = cases_of(op, world, dtype, np.random.default_rng(number))
        check(world, cases[number::7][:3], issue_all)


def test_ranks_that_must_run_one_program():
    x = torch.ones(3, 2, device=torch_xla.device())
    with lowering_for("tpu:v5e:2x4"):
        with pytest.raises(ValueError, match=r"on tpu:v5e:2x4 all ranks run one.*with 4 rows"):
            xm.uneven_all_gather(x, [3, 4, *[0] * 6])
        with pytest.raises(ValueError, match="uneven_all_to_all: sizes = "):
            xm.uneven_all_to_all(x, [[3, *[0] * 7], *[[0] * 8] * 7])
        assert xm.uneven_all_gather(x, [3] * 8).shape == (24, 2)
        assert xm.uneven_all_gather(x, [3, 1, *[0] * 6], padded=True).shape == (4, 2)


def call_lists(rank):
    x = torch.arange(3.0 * (rank + 1), device=torch_xla.device()).reshape(-1, 3)
    sizes = [1, 2]
    results = [
        *xm.uneven_all_gather([x, x.to(torch.int8)], sizes),
        *xm.uneven_all_gather((x[:0], x[:0, :0]), [0, 0]),
    ]
    return take_all(results)


def test_lists():
    whole = np.array([[0, 1, 2], [0, 1, 2], [3, 4, 5]])
    for floats, ints, none, less in worlds.run(2, call_lists):
        assert np.array_equal(floats, whole.astype(np.float32))
        assert np.array_equal(ints, whole.astype(np.int8))
        assert none.shape == (0, 3)
        assert less.shape == (0, 0)


def call_wrong_sizes(rank):
    x = torch.ones(3, 2, device=torch_xla.device())
    said = []
    for call in (
        lambda: xm.uneven_all_gather(x, [2, 4]),
        lambda: xm.uneven_reduce_scatter("sum", x, [2, 3]),
        lambda: xm.uneven_all_to_all(x, [[2, 0], [0, 2]]),
        lambda: xm.uneven_all_gather(x, [2, 3], padded=True).shape,
        lambda: xm.uneven_all_gather(x[:2], [2, 3], padded=True),
        lambda: xm.uneven_all_gather(x[:2], [2, -3]),
        lambda: xm.uneven_all_gather(x[:2], [2]),
        lambda: xm.uneven_all_to_all(x, [3, 3]),
        lambda: xm.uneven_all_gather(x, [3, 3], groups=[[rank]]),
    ):
        try:
            said.append(str(call()))
        except (ValueError, TypeError) as error:
            said.append(str(error))
    return said


def test_messages():
    [first, second] = worlds.run(2, call_wrong_sizes)
    assert "uneven_all_gather: value has the shape [3, 2] on rank 0" in first[0]
    assert "this rank gives 2 rows" in first[0]
    assert "on rank 1, but by sizes this rank gives 4 rows" in second[0]
    assert "uneven_reduce_scatter: input has the shape [3, 2]" in first[1]
    assert "this rank gives 5 rows" in first[1]
    assert "uneven_all_to_all: value has the shape [3, 2] on rank 1" in second[2]
    assert first[3] == "torch.Size([5, 2])"
    assert "(V2)" in first[4]
    assert "operand 0 = f32[2,2], but it must be of 3 rows in dimension 0" in first[4]
    assert "(V1)" in first[5]
    assert "sizes[1] is -3" in first[5]
    assert "(V1)" in first[6]
    assert "(A1)" in first[7]
    assert "(V3)" in first[8]
