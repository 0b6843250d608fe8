"""Invalid calls: a TypeError or a ValueError that names the op and the argument, and no harm done.

Made by a seeded generator (invalid_calls.py) and by lists, in a launched world of two ranks and for
targets that are not here, with valid calls between.
"""

import collections
import itertools
import math
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import forks
import numpy
import pytest
import torch
import torch_xla
import worlds
from invalid_calls import (
    DTYPES,
    FIELDS,
    FLOATS,
    FUNCTIONS,
    INTEGERS,
    NOT_FINITE,
    NOT_INTS,
    NOT_NUMBERS,
    Call,
    Evil,
    Index,
    Spoiler,
    show,
)
from invalid_questions import policies, questions
from invalid_uneven import uneven_calls

import torch_xla_cc
from torch_xla_cc import _C, Channel
from torch_xla_cc import xla_model as xm

RANDOM_CALLS = 14_000
BETWEEN_VALID_CALLS = 400


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
            operand: Any = (
                [tensors[torch.int32 if kind != "average" else dtype][0], x] if listed else x
            )
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
            yield Call(
                op, ("output",), lambda c=call, o=output: c(o), f"{op} output={show(output)}"
            )
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
        # Alone these are valid: a tensor without data, and one on another rank's device.
        if isinstance(value, torch.Tensor) and value.device.type in ("meta", "xla"):
            continue
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
            "uneven_all_gather": ([1], None),
            "uneven_reduce_scatter": ("sum", 1.0, 1.0, [1], None),
            "uneven_all_to_all": ([[1]], None),
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
        "one bad argument": (here.call(EVEN) for _ in range(RANDOM_CALLS)),
        "one bad argument, for eight TPUs": (far.call(EVEN) for _ in range(RANDOM_CALLS // 2)),
        "sizes that do not divide": indivisible(),
        "reduce kinds, scales and types": kinds_of_types(here.tensors),
        "outputs": outputs(here.good),
        "channels": channels(here),
        "others": others(here),
        "uneven ops": (here.call(UNEVEN) for _ in range(7000)),
        "uneven ops, for eight TPUs": (far.call(UNEVEN) for _ in range(3000)),
        "sizes": uneven_calls(rng, 7000),
        "policies": policies(here),
        "questions": questions(rng, 3000),
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


EVEN = [op for op in FIELDS if not op.startswith("uneven")]
UNEVEN = [op for op in FIELDS if op not in EVEN]
OF_THE_EVEN_OPS = ["one bad argument", "one bad argument, for eight TPUs"]
OF_THE_EVEN_OPS += ["sizes that do not divide", "reduce kinds, scales and types", "outputs"]
OF_THE_EVEN_OPS += ["others"]
OF_WHAT_CAME_LATER = ["uneven ops", "uneven ops, for eight TPUs", "sizes", "channels"]
OF_WHAT_CAME_LATER += ["policies", "questions"]


@pytest.fixture(scope="module")
def report():
    return worlds.run(2, refusals, timeout_s=100)


@pytest.mark.parametrize("area", [*OF_THE_EVEN_OPS, *OF_WHAT_CAME_LATER])
def test_refused(report, area):
    for of_rank in report:
        made, wrong = of_rank[area]
        few = "\n".join(wrong[:40])
        assert not wrong, f"{len(wrong)} kinds of calls out of {made} went wrong:\n{few}"


@pytest.mark.parametrize("areas", [OF_THE_EVEN_OPS, OF_WHAT_CAME_LATER], ids=["even", "later"])
def test_at_least_20000_calls(report, areas):
    for of_rank in report:
        assert set(of_rank) == {*OF_THE_EVEN_OPS, *OF_WHAT_CAME_LATER}
        assert sum(of_rank[area][0] for area in areas) >= 20_000


# Lists that are emptied while they are read, by the __index__ of what is in them.
EMPTIED = {
    "a group": "group = []; group.append(Empty(group)); group.extend(range(2000)); "
    "call = lambda: _C.lower_all_gather(SHAPE, 0, [group])",
    "the groups": "groups = []; groups.append([Empty(groups)]); "
    "groups.extend([i] for i in range(2000)); call = lambda: _C.lower_all_gather(SHAPE, 0, groups)",
    "the pairs": "pairs = []; pairs.append([0, Empty(pairs)]); "
    "pairs.extend([i, i] for i in range(2000)); "
    "call = lambda: _C.lower_collective_permute(SHAPE, pairs)",
    "the operands": "xs = [torch.ones(8, device='meta') for _ in range(2000)]; "
    "call = lambda: _C.all_gather(xs, Empty(xs), None)",
}
SCRIPT = """
import torch, torch_xla_cc
from torch_xla_cc import _C
SHAPE = [(11, [8])]
class Empty:
    def __init__(self, of): self.of = of
    def __index__(self):
        self.of.clear()
        [[i] * 5 for i in range(1000)]
        return 0
with torch_xla_cc.lowering_for("tpu", 8):
    for _ in range(100):
        {make}
        try:
            call()
        except (TypeError, ValueError) as error:
            assert "undefined" not in str(error), error
print("alive")
"""


@pytest.mark.parametrize("name", EMPTIED)
def test_lists_that_are_emptied_while_they_are_read(name):
    script = SCRIPT.format(make=EMPTIED[name])
    done = forks.run_code(script)
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr[-2000:]
