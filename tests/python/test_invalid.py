"""Invalid calls: a TypeError or a ValueError that names the op and the argument, and no harm done.

Calls are made from valid ones by spoiling one argument, by a seeded generator and by lists, in a
launched world of two ranks and for targets that are not here. What counts as spoiled is written
down here, beside the code, and not read off it.
"""

import collections
import dataclasses
import itertools
import math
import random
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
import torch_xla
import worlds

import torch_xla_cc
from torch_xla_cc import _C, Channel
from torch_xla_cc import xla_model as xm

RANDOM_CALLS = 14_000
BETWEEN_VALID_CALLS = 400


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
NOT_KINDS = [None, 0, 1.0, b"sum", ["sum"], object(), Evil(), True, "", "SUM", " sum", "sum ", "avg"]
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
        return self.rng.choice([None, [], whole, tuple(map(tuple, whole))])

    def bad_groups(self, uniform: bool) -> Any:
        rng, world = self.rng, self.world
        lists = self.partition([1] * (world - 1) + [1])
        if world > 2 and uniform and rng.random() < 0.2:
            return self.partition([1, world - 1])
        if rng.random() < 0.5:
            lists = self.partition([world])
        group = rng.choice(lists)
        at = rng.randrange(len(group))
        match rng.randrange(9):
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
                group.pop()
            case 6:
                lists.insert(rng.randrange(len(lists) + 1), [])
            case 7:
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
        listed = [self.tensors[self.rng.choice([dtype, torch.float32])][place] for _ in range(count)]
        return [tensor.clone() for tensor in listed]  # lists may be written to

    def bad(self, op: str, field: str, operands: Any) -> Any:
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
            return self.bad_groups(uniform=op in ("all_gather", "reduce_scatter", "all_to_all"))
        if field == "pairs":
            return self.bad_pairs()
        if field == "reduce_type":
            return rng.choice([*NOT_KINDS, "and", "or", "xor"])
        return rng.choice([*NOT_NUMBERS, *NOT_FINITE, *([2.0, 0.5] if field == "factor" else [])])

    def call(self) -> Call:
        """One random call with one bad argument."""
        rng = self.rng
        op = rng.choice(list(FIELDS))
        front = rng.choice(["xla_model", "xla_model", "_C", "lower"])
        if op in ("send", "recv") and front == "xla_model":
            front = "_C"  # their functions take a Channel: see channel_calls
        name, names = rng.choice(FUNCTIONS.get(op, [(op, {})]))
        operands = self.operands(listed=name.endswith("bucketized") or "broadcast" in name)
        valid = {
            "dim": 0,
            "split_dim": 0,
            "concat_dim": -1,
            "root": rng.randrange(self.world),
            "channel": rng.choice([1, 7, 2**31 - 1]),
            "groups": self.groups(),
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
        args[field] = self.bad(op, field, operands)
        words = (field, names.get(field, field)) + (("operand",) if field == "operands" else ())
        if front == "xla_model":
            kwargs = {names.get(key, key): value for key, value in args.items()}
            function: Callable[..., Any] = getattr(xm, name)
            return Call(op, words, lambda: function(**kwargs), f"xm.{name} {field}={show(args[field])}")
        positional = [args[key] for key in ("operands", *FIELDS[op])]
        if front == "lower":
            one = operands if isinstance(operands, torch.Tensor) else operands[0]
            positional[0] = [(11, list(one.shape))]
            op_of_c = getattr(_C, f"lower_{op}")
        else:
            op_of_c = getattr(_C, op)
        return Call(
            op, words, lambda: op_of_c(*positional), f"_C.{op_of_c.__name__} {field}={show(args[field])}"
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


def indivisible() -> Iterator[Call]:
    """Sizes that do not divide; the message names the next one that would."""
    for members, size in itertools.product(range(2, 9), range(1, 130)):
        if size % members == 0:
            continue
        following = size + members - size % members
        scatter = (_C.lower_reduce_scatter, [[(11, [3, size])], "sum", 1.0, 1.0, 1, None, None])
        exchange = (_C.lower_all_to_all, [[(11, [3, size])], 1, 0, None, None])
        for function, args in (scatter, exchange):
            yield Call(
                function.__name__.removeprefix("lower_"),
                (f"Pad it to {following},",),
                lambda f=function, a=args, n=members: _for("tpu", n, f, *a),
                f"{function.__name__} of {size} by {members}",
            )


def _for(target: Any, world_size: Any, function: Callable[..., Any], *args: Any) -> Any:
    with torch_xla_cc.lowering_for(target, world_size):
        return function(*args)


def kinds_of_types(tensors: dict[torch.dtype, list[torch.Tensor]]) -> Iterator[Call]:
    """Reduce kinds, scales and factors that a type does not have, also hidden in a list."""
    bad: list[tuple[list[torch.dtype], str, str, Any]] = [
        ([*FLOATS, torch.complex64], "reduce_type", kind, 1.0) for kind in ("and", "or", "xor")
    ]
    bad += [([torch.complex64], "reduce_type", kind, 1.0) for kind in ("min", "max")]
    bad += [([torch.bool], "reduce_type", "average", 1.0)]
    bad += [(DTYPES, "scale", "sum", value) for value in NOT_FINITE]
    for value in (0.5, 1e-9, -2.25, 2.0**31, -(2.0**31) - 1, 1e300, 2**40):
        bad.append((INTEGERS, "scale", "sum", value))
    bad += [([torch.bool], "scale", "sum", value) for value in (0, 2, -1, 0.5)]
    for dtypes, word, kind, scale in bad:
        for dtype, listed, count in itertools.product(dtypes, (False, True), (1, 2)):
            x = tensors[dtype][count - 1]
            operand: Any = [tensors[torch.int32 if kind != "average" else dtype][0], x] if listed else x
            about = f"{dtype} {kind} scale={scale} listed={listed}"
            yield Call(
                "all_reduce",
                (word,),
                lambda k=kind, o=operand, s=scale: xm.all_reduce(k, o, s),
                f"all_reduce {about}",
            )
            yield Call(
                "reduce_scatter",
                (word,),
                lambda k=kind, o=operand, s=scale: xm.reduce_scatter(k, o, s),
                f"reduce_scatter {about}",
            )
            if word == "scale":
                premultiplied = xm.REDUCE_PREMULTIPLIED_SUM
                yield Call(
                    "all_reduce",
                    ("factor",),
                    lambda o=operand, s=scale, p=premultiplied: xm.all_reduce(p, o, factor=s),
                    f"all_reduce {about} as factor",
                )


def outputs(good: torch.Tensor) -> Iterator[Call]:
    """Places for the result of another shape, type, number or kind."""
    zeros = torch.zeros(16, device=good.device)
    bad = [zeros[:15], zeros[:8], zeros.reshape(2, 8), zeros[0], zeros.int(), zeros.double()]
    bad += [torch.zeros(16), torch.zeros(16, device="meta"), torch.zeros(16).to_sparse()]
    kinds = [None, 0, "x", 1.5, object(), Evil(), numpy.zeros(16), {}, [], [zeros], ()]
    lists = [*([b] for b in bad), [], [zeros, zeros], [None], [0], [Evil()], zeros, 0, "x", Evil()]
    one = {
        "all_gather": lambda output: xm.all_gather(good, output=output),
        "reduce_scatter": lambda output: xm.reduce_scatter(
            "sum", torch.ones(32, device=good.device), output=output
        ),
    }
    many = {
        "all_gather": lambda output: xm.all_gather([good], output=output),
        "all_gather_bucketized": lambda output: xm.all_gather_bucketized([good], output=output),
        "reduce_scatter_bucketized": lambda output: xm.reduce_scatter_bucketized(
            "sum", [torch.ones(32, device=good.device)], output=output
        ),
    }
    for op, call in one.items():
        for output in [*bad, *kinds[1:]]:
            yield Call(op, ("output",), lambda c=call, o=output: c(o), f"{op} output={show(output)}")
    for op, call in many.items():
        op_told = op.removesuffix("_bucketized")
        for output in lists:
            about = f"{op} of a list, output={show(output)}"
            yield Call(op_told, ("output",), lambda c=call, o=output: c(o), about)


def channels(spoiler: Spoiler) -> Iterator[Call]:
    """send, recv and Channel."""
    good = spoiler.good
    ring = Channel([(0, 1), (1, 0)])
    bare = [*NOT_INTS, None, 0, -1, 2**20, 2**62, ring.pairs]
    for channel in bare:
        for name, call in (("send", xm.send), ("recv", xm.recv)):
            yield Call(
                name,
                ("channel_id", "channel"),
                lambda c=call, ch=channel: c(good, ch),
                f"{name} channel={show(channel)}",
            )
    for tag in [*NOT_INTS, None, -1, 2**20, 2**62]:
        yield Call("Channel", ("tag",), lambda t=tag: Channel([(0, 1)], t), f"tag={show(tag)}")
    for _ in range(300):
        pairs = spoiler.bad_pairs()
        about = f"Channel pairs={show(pairs)}"
        yield Call("send|Channel", ("pairs",), lambda p=pairs: xm.send(good, Channel(p)), about)
    for value in [*spoiler.bad_operands, *spoiler.bad_items, [good]]:
        for channel in (ring, 5):
            about = f"send value={show(value)} on {channel}"
            words = ("value", "operand")
            yield Call("send", words, lambda v=value, c=channel: xm.send(v, c), about)
    shapes = [None, 0, 1.5, "ab", [-1], [1.5], [2**63], [2**100], ["a"], [None], [[1]], [True]]
    shapes += [object(), Evil(), [Evil()], {"a": 1}, [2**40, 2**40], good.cpu(), good.to("meta")]
    for shape, channel in itertools.product(shapes, (ring, 5)):
        about = f"recv output={show(shape)} on {channel}"
        yield Call("recv", ("output",), lambda s=shape, c=channel: xm.recv(s, c), about)
    for dtype in ["float32", 0, float, None, torch.qint8, torch.strided]:
        about = f"recv dtype={dtype}"
        yield Call("recv", ("dtype", "output"), lambda d=dtype: xm.recv((8,), ring, d), about)


def others(spoiler: Spoiler) -> Iterator[Call]:
    """Buckets, targets, calls that Python itself refuses, and shapes that no tensor can have."""
    good = spoiler.good
    for cap in [*NOT_NUMBERS[:-1], -1, -0.5, math.nan, -math.inf, -(2**100)]:
        for name in ("all_gather_bucketized", "reduce_scatter_bucketized"):
            args = ("sum", [good]) if name.startswith("reduce") else ([good],)
            yield Call(
                name,
                ("bucket_cap_mb",),
                lambda n=name, a=args, c=cap: getattr(xm, n)(*a, bucket_cap_mb=c),
                f"{name} bucket_cap_mb={show(cap)}",
            )
    targets: list[tuple[Any, Any]] = [("", 2), (":", 2), (":2x2", None), ("cpu", None)]
    targets += [("tpu:v5e:2x4", 7), ("gpu:h100x8", 4), ("tpu", -1), ("tpu", 2**20 + 1)]
    targets += [("tpu", 2**62), ("tpu", 2**100), ("tpu:v5e:0x4", None), ("tpu:v5e:2xx4", None)]
    targets += [("tpu:v5e:9999999x9999999", None), ("tpu:v5e:-2x4", None), ("tpu", -(2**63))]
    targets += [(bad, 2) for bad in (None, 5, 1.5, [], b"tpu", object(), "\ud800", Evil())]
    targets += [("tpu", bad) for bad in ("2", 1.5, [2], object(), b"2", 1j, Evil(), Index("2"))]
    for target, world_size in targets:
        yield Call(
            "target|lowering_for",
            ("name", "target", "world_size"),
            lambda t=target, w=world_size: _for(t, w, lambda: None),
            f"lowering_for({show(target)}, {show(world_size)})",
        )
    for name, names in itertools.chain(*FUNCTIONS.values()):
        function = getattr(xm, name)
        yield Call(name, ("argument",), lambda f=function: f(), f"{name}()")
        yield Call(name, ("mode",), lambda f=function: f(good, mode=1), f"{name}(mode=1)")
        yield Call(name, ("argument",), lambda f=function: f(*[good] * 20), f"{name}(20 arguments)")
        assert names
    for op, fields in FIELDS.items():
        function = getattr(_C, op)
        for count in [*range(len(fields) + 1), len(fields) + 2, 30]:
            args = ["sum" if field == "reduce_type" else 1 for field in fields]
            args = [*args, *[None] * 30][: max(count - 1, 0)]
            call = (lambda f=function, a=args: f(good, *a)) if count else function
            yield Call(op, ("argument", *fields), call, f"_C.{op} with {count} arguments")
    huge = [[2**62], [2**31, 2**31, 2**31], [2**40, 2**40], [2**63 - 1], [3, 2**61]]
    for dims, (name, args) in itertools.product(
        huge,
        {
            "all_gather": (0, None),
            "all_reduce": ("sum", 1.0, 1.0, None),
            "reduce_scatter": ("sum", 1.0, 1.0, 0, None, None),
            "collective_permute": ([(0, 1)],),
            "all_to_all": (0, 0, None, None),
            "collective_broadcast": (0, None),
        }.items(),
    ):
        function = getattr(_C, f"lower_{name}")
        for world in (1, 2, 2**20):
            about = f"lower_{name} of {dims} for {world}"
            call = lambda f=function, d=dims, a=args, w=world: _for("tpu", w, f, [(11, d)], *a)  # noqa: E731
            yield Call(name, ("operand", "dim", "groups", "pairs"), call, about)


def outcome(call: Call) -> str | None:
    """What is wrong with what a call does; None if it is refused as it must be."""
    try:
        call.run()
    except (TypeError, ValueError) as error:
        text = str(error)
        words = "|".join(map(re.escape, call.words))
        if re.search(rf"\b({call.op})(_bucketized)?\b.*({words})", text, re.DOTALL):
            return None
        return f"{type(error).__name__} that does not name {call.op} and {call.words}: {text:.200}"
    except Exception as error:
        return f"{type(error).__name__}: {error!s:.200}"
    return "accepted"


def refusals(rank: int) -> dict[str, tuple[int, list[str]]]:
    """By area: the number of calls made, and what is wrong with some of them."""
    rng = random.Random(20260)
    here = Spoiler(rng, 2, rank)
    far = Spoiler(rng, 8, rank)
    areas: dict[str, Iterator[Call]] = {
        "one bad argument": (here.call() for _ in range(RANDOM_CALLS)),
        "one bad argument, for eight TPUs": (far.call() for _ in range(RANDOM_CALLS // 2)),
        "sizes that do not divide": indivisible(),
        "reduce kinds, scales and types": kinds_of_types(here.tensors),
        "outputs": outputs(here.good),
        "channels": channels(here),
        "others": others(here),
    }
    report = {}
    for area, calls in areas.items():
        made = 0
        wrong: collections.Counter[str] = collections.Counter()
        for call in calls:
            if area.endswith("TPUs"):
                with torch_xla_cc.lowering_for("tpu:v5e:2x4"):
                    found = outcome(call)
            else:
                found = outcome(call)
            made += 1
            if found is not None:
                wrong[f"{call.about}: {found}"] += 1
            if made % BETWEEN_VALID_CALLS == 0:
                assert valid(rank, made), f"a valid call after {call.about}"
        assert valid(rank, made), f"a valid call after {area}"
        report[area] = (made, [f"{count} x {text}" for text, count in wrong.most_common()])
    return report


def valid(rank: int, number: int) -> bool:
    """A collective that must still work."""
    x = torch.tensor([float(number), float(rank)]).to(torch_xla.device())
    summed = xm.all_reduce(xm.REDUCE_SUM, x).tolist() == [2.0 * number, 1.0]
    return summed and xm.all_gather(x).tolist() == [number, 0.0, number, 1.0]
