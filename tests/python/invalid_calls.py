"""Random calls with one bad argument, for test_invalid.py.

A call is valid but for one argument. What counts as bad is written down here, and not read off the
code that is to refuse it.
"""

from __future__ import annotations

import dataclasses
import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import torch
import torch_xla

from torch_xla_cc import _C
from torch_xla_cc import xla_model as xm


@dataclasses.dataclass
class Call:
    """A call that must be refused, by a message with the op and one of the words."""

    op: str
    words: tuple[str, ...]
    run: Callable[[], Any]
    about: str


class Evil:
    """Raises from whatever is asked of it."""

    def _raise(self, *_: Any) -> Any:
        raise RuntimeError("evil")

    __index__ = __int__ = __float__ = __len__ = __iter__ = __getitem__ = __bool__ = _raise
    __repr__ = __str__ = __hash__ = __eq__ = __torch_function__ = _raise


class Index:
    """An index that is none."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> Any:
        return self.value


class HugeSequence:
    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, _: int) -> int:
        return 0


RECURSIVE: list[Any] = []
RECURSIVE.append(RECURSIVE)

NOT_INTS = ["0", b"0", "", 0.0, 1.0, math.nan, True, False, [], [0], (0,), {}, {0}, object(), int]
NOT_INTS += [1j, 2**63, -(2**63) - 1, 2**100, -(2**100), Evil(), Index("0"), Index(2**70), ...]
NOT_INTS += [numpy.float32(0), numpy.zeros(2), range(2), torch.ones(2), torch.float32, RECURSIVE]
NOT_NUMBERS = ["1", b"1", "", True, [], [1.0], {}, object(), 1j, Evil(), Index(1), None, float]
NOT_NUMBERS += [torch.ones(2), RECURSIVE, 10**400]
NOT_FINITE = [math.nan, math.inf, -math.inf]
NOT_LISTS = [0, 1, 1.5, "01", b"01", True, {0: [0, 1]}, {0, 1}, object(), Evil(), HugeSequence()]
NOT_LISTS += [range(2), numpy.zeros((1, 2), int), torch.zeros(1, 2, dtype=torch.int64), 2**100]
NOT_KINDS = [
    None,
    0,
    1.0,
    b"sum",
    ["sum"],
    object(),
    Evil(),
    True,
    "",
    "SUM",
    " sum",
    "sum ",
    "avg",
]
NOT_KINDS += ["add", "mean", "\ud800", "sum\0", "x" * 10**6, "REDUCE_SUM", torch.ones(1)]

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
INTEGERS = [torch.int32, torch.int64, torch.uint8, torch.int8]
DTYPES = [*FLOATS, *INTEGERS, torch.bool, torch.complex64]

# Fields of the operations of _C, in order.
FIELDS = {
    "all_gather": ["dim", "groups"],
    "all_reduce": ["reduce_type", "scale", "factor", "groups"],
    "reduce_scatter": ["reduce_type", "scale", "factor", "dim", "shard_count", "groups"],
    "collective_permute": ["pairs"],
    "all_to_all": ["split_dim", "concat_dim", "split_count", "groups"],
    "collective_broadcast": ["root", "groups"],
    "send": ["channel", "pairs"],
    "recv": ["channel", "pairs"],
    "uneven_all_gather": ["sizes", "groups"],
    "uneven_reduce_scatter": ["reduce_type", "scale", "factor", "sizes", "groups"],
    "uneven_all_to_all": ["sizes", "groups"],
}
# The functions of xla_model that end in them, and what they call their arguments.
FUNCTIONS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "all_gather": [("all_gather", {"operands": "value"})],
    "all_reduce": [("all_reduce", {"operands": "inputs"})],
    "reduce_scatter": [("reduce_scatter", {"operands": "input", "dim": "scatter_dim"})],
    "collective_permute": [("collective_permute", {"operands": "value"})],
    "all_to_all": [
        (
            "all_to_all",
            {"operands": "value", "split_dim": "split_dimension", "concat_dim": "concat_dimension"},
        )
    ],
    "collective_broadcast": [
        ("collective_broadcast", {"operands": "tensors", "root": "root_ordinal"})
    ],
}
FUNCTIONS["uneven_all_gather"] = [("uneven_all_gather", {"operands": "value"})]
FUNCTIONS["uneven_reduce_scatter"] = [("uneven_reduce_scatter", {"operands": "input"})]
FUNCTIONS["uneven_all_to_all"] = [("uneven_all_to_all", {"operands": "value"})]
FUNCTIONS["all_gather"].append(("all_gather_bucketized", {"operands": "input_list"}))
FUNCTIONS["reduce_scatter"].append(
    ("reduce_scatter_bucketized", {"operands": "input_list", "dim": "scatter_dim"})
)


class Spoiler:
    """Makes valid arguments for a world, and spoils one of them."""

    def __init__(self, rng: random.Random, world: int, rank: int) -> None:
        self.rng = rng
        self.world = world
        device = torch_xla.device()
        shapes = [(8,), (8, 8), (8, 16, 8)]
        self.tensors = {
            dtype: [torch.ones(shape).to(dtype).to(device) for shape in shapes] for dtype in DTYPES
        }
        other = torch.ones(8).to(torch.device("xla", 1 - rank))
        self.good = self.tensors[torch.float32][0]
        cpu = torch.ones(8)
        elsewhere = [cpu, other, cpu.to_sparse(), cpu.to("meta")]
        elsewhere.append(torch.quantize_per_tensor(cpu, 0.1, 0, torch.quint8))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # complex32 is experimental
            elsewhere += [cpu.to(torch.complex32), cpu.to(torch.float8_e4m3fnuz)]
            elsewhere += [torch.empty(8, 8).to_sparse_csr()]
        not_tensors = [None, 0, 1.5, "x", [], [self.good], {}, object(), Evil(), numpy.ones(8), ...]
        self.bad_items = [*elsewhere, *not_tensors]
        self.bad_operands = [None, 0, 1.5, "x", {}, {0: 1}, object(), numpy.ones(8), Evil()]
        self.bad_operands += [iter([self.good]), cpu, cpu.to_sparse(), elsewhere[4], RECURSIVE]
        self.bad_operands += [HugeSequence(), range(3)]

    def partition(self, sizes: list[int]) -> list[list[int]]:
        ranks = self.rng.sample(range(self.world), self.world)
        return [[ranks.pop() for _ in range(size)] for size in sizes]

    def groups(self) -> Any:
        size = self.rng.choice([s for s in range(1, self.world + 1) if self.world % s == 0])
        whole = self.partition([size] * (self.world // size))
        some = self.partition([size])  # and the others in none
        return self.rng.choice([None, [], whole, some, tuple(map(tuple, whole))])

    def sizes(self, op: str, groups: Any) -> Any:
        """Those that operands of eight rows have."""
        world = self.world
        if op == "uneven_all_gather":
            return [8] * world
        lists = groups or [range(world)]
        if op == "uneven_reduce_scatter":
            return [8 // len(lists[0])] * world
        matrix = [[0] * world for _ in range(world)]
        for group in lists:
            for i in group:
                for j in group:
                    matrix[i][j] = 8 // len(group)
        return matrix

    def bad_sizes(self, op: str, groups: Any) -> Any:
        rng, world = self.rng, self.world
        sizes = self.sizes(op, groups)
        row = rng.choice(sizes) if op == "uneven_all_to_all" else sizes
        match rng.randrange(5):
            case 0:
                return rng.choice([*NOT_LISTS, None, [], ()])
            case 1:
                row.append(rng.choice([0, 8]))
            case 2:
                row.pop()
            case 3:
                row[rng.randrange(world)] = rng.choice([-1, 2**31, 2**40, 2**62, -(2**63)])
            case _:
                row[rng.randrange(world)] = rng.choice([*NOT_INTS, None])
        return sizes

    def bad_groups(self) -> Any:
        rng, world = self.rng, self.world
        lists = self.partition([1] * (world - 1) + [1])
        if rng.random() < 0.5:
            lists = self.partition([world])
        group = rng.choice(lists)
        at = rng.randrange(len(group))
        match rng.randrange(8):
            case 0:
                return rng.choice(NOT_LISTS)
            case 1:
                lists[lists.index(group)] = rng.choice(NOT_LISTS)
            case 2:
                group[at] = rng.choice([*NOT_INTS, None])
            case 3:
                group[at] = rng.choice([-1, world, world + 1, 2**20, 2**31, 2**62, -(2**63)])
            case 4:
                group.append(rng.randrange(world))
            case 5:
                lists.insert(rng.randrange(len(lists) + 1), [])
            case 6:
                lists.append(list(rng.choice(lists)))
            case _:
                group.extend(rng.choices(range(-1, world + 1), k=rng.choice([1, 10, 5000])))
        return lists

    def pairs(self) -> list[tuple[int, int]]:
        count = self.rng.randrange(1, self.world + 1)
        return list(
            zip(*(self.rng.sample(range(self.world), count) for _ in range(2)), strict=True)
        )

    def bad_pairs(self) -> Any:
        rng, world = self.rng, self.world
        pairs: list[Any] = self.pairs()
        at = rng.randrange(len(pairs))
        source, target = pairs[at]
        match rng.randrange(7):
            case 0:
                return rng.choice([*NOT_LISTS, None])
            case 1:
                pairs[at] = rng.choice([*NOT_LISTS, None])
            case 2:
                pairs[at] = rng.choice([(), (source,), (source, target, target), [source] * 5000])
            case 3:
                bad = rng.choice([*NOT_INTS, None])
                pairs[at] = rng.choice([(source, bad), (bad, target)])
            case 4:
                bad = rng.choice([-1, world, 2**31, 2**62, -(2**63)])
                pairs[at] = rng.choice([(source, bad), (bad, target)])
            case 5:
                pairs.append((source, rng.randrange(world)))
            case _:
                pairs.append((rng.randrange(world), target))
        return pairs

    def operands(self, listed: bool) -> Any:
        dtype = self.rng.choice(FLOATS)
        if not listed and self.rng.random() < 0.6:
            return self.rng.choice(self.tensors[dtype])
        count = self.rng.choice([1, 1, 2, 3])
        # Of one rank, for dims that count from the end.
        place = self.rng.randrange(3)
        listed = [
            self.tensors[self.rng.choice([dtype, torch.float32])][place] for _ in range(count)
        ]
        return [tensor.clone() for tensor in listed]  # lists may be written to

    def bad(self, op: str, field: str, operands: Any, groups: Any = None) -> Any:
        """A bad value of a field; None if the field has none here."""
        rng = self.rng
        first = operands if isinstance(operands, torch.Tensor) else operands[0]
        rank = first.dim()
        if field == "operands":
            if rng.random() < 0.3:
                return rng.choice(self.bad_operands)
            values = [*operands] if isinstance(operands, list) else [operands]
            values.insert(rng.randrange(len(values) + 1), rng.choice(self.bad_items))
            return values
        if field in ("dim", "split_dim", "concat_dim"):
            out = [rank, rank + 1, -rank - 1, 2**31, 2**62, 2**63 - 1, -(2**63)]
            return rng.choice([*NOT_INTS, None, *out, *out])
        if field in ("shard_count", "split_count"):
            return rng.choice([*NOT_INTS, 0, -1, self.world + 1, 2**31, 2**62, -(2**63)])
        if field == "root":
            out = [-1, self.world, self.world + 1, 2**31, 2**62, -(2**63)]
            return rng.choice([*NOT_INTS, None, *out, *out])
        if field == "channel":
            out = [0, -1, 2**31, 2**62, -(2**63)]
            return rng.choice([*NOT_INTS, None, *out, *out])
        if field == "groups":
            return self.bad_groups()
        if field == "sizes":
            return self.bad_sizes(op, groups)
        if field == "pairs":
            return self.bad_pairs()
        if field == "reduce_type":
            return rng.choice([*NOT_KINDS, "and", "or", "xor"])
        return rng.choice([*NOT_NUMBERS, *NOT_FINITE, *([2.0, 0.5] if field == "factor" else [])])

    def call(self, ops: list[str]) -> Call:
        """One random call of one of the ops with one bad argument."""
        rng = self.rng
        op = rng.choice(ops)
        front = rng.choice(["xla_model", "xla_model", "_C", "lower"])
        if op in ("send", "recv") and front == "xla_model":
            front = "_C"  # their functions take a Channel: see channel_calls
        name, names = rng.choice(FUNCTIONS.get(op, [(op, {})]))
        operands = self.operands(listed=name.endswith("bucketized") or "broadcast" in name)
        groups = self.groups()
        if groups and "sizes" in FIELDS[op] and sum(map(len, groups)) < self.world:
            groups = None  # ranks in none have other sizes
        valid = {
            "sizes": self.sizes(op, groups) if "sizes" in FIELDS[op] else None,
            "dim": 0,
            "split_dim": 0,
            "concat_dim": -1,
            "root": rng.randrange(self.world),
            "channel": rng.choice([1, 7, 2**31 - 1]),
            "groups": groups,
            "pairs": self.pairs(),
            "reduce_type": rng.choice(["sum", "min", "max", "mul", "average"]),
            "scale": rng.choice([1.0, 0.5, 3]),
            "factor": 1.0,
            "shard_count": None,
            "split_count": None,
        }
        args = {"operands": operands} | {field: valid[field] for field in FIELDS[op]}
        spoilable = [*FIELDS[op], *([] if front == "lower" else ["operands"])]
        if name.startswith("reduce_scatter_b") and front == "xla_model":
            spoilable.remove("factor")
            del args["factor"]
        field = rng.choice(spoilable)
        args[field] = self.bad(op, field, operands, groups)
        words = (field, names.get(field, field)) + (("operand",) if field == "operands" else ())
        # Sizes that fit the groups before they were spoiled.
        words += ("sizes",) if field == "groups" and "sizes" in args else ()
        if front == "xla_model":
            kwargs = {names.get(key, key): value for key, value in args.items()}
            function: Callable[..., Any] = getattr(xm, name)
            return Call(
                op, words, lambda: function(**kwargs), f"xm.{name} {field}={show(args[field])}"
            )
        positional = [args[key] for key in ("operands", *FIELDS[op])]
        if front == "lower":
            one = operands if isinstance(operands, torch.Tensor) else operands[0]
            positional[0] = [(11, list(one.shape))]
            op_of_c = getattr(_C, f"lower_{op}")
        else:
            op_of_c = getattr(_C, op)
        return Call(
            op,
            words,
            lambda: op_of_c(*positional),
            f"_C.{op_of_c.__name__} {field}={show(args[field])}",
        )


def show(value: Any) -> str:
    # A tensor's values are not read: that would run the graph.
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)} on {value.device}"
    if isinstance(value, list) and value is not RECURSIVE:
        return f"[{', '.join(map(show, value[:9]))}]"
    try:
        return f"{value!r:.80} ({type(value).__name__})"
    except RuntimeError:
        return type(value).__name__
