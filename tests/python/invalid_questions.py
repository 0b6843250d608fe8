"""Calls of what asks about lowerings and steers them, with one bad argument."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from invalid_calls import Call, Evil, Spoiler, show

import torch_xla_cc
from torch_xla_cc import Channel, capabilities
from torch_xla_cc import xla_model as xm

NOT_STRINGS = [0, 1.5, True, [], ["cpu"], {}, b"cpu", object(), Evil(), 2**100, torch.ones(1), ...]
NOT_POLICIES = [*NOT_STRINGS, "", "Warn", "never", "error ", "allow\0", "\ud800", "x" * 10**5]
OPS = ["all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_broadcast"]
OPS += ["collective_permute", "send", "recv"]
OPS += ["uneven_all_gather", "uneven_reduce_scatter", "uneven_all_to_all"]
TARGETS = ["cpu", "tpu:v5e", "tpu:v4", "gpu:h100", "neuron", "tpu:v6e:2x4", "tpu:v5e:16x16"]
DTYPES = [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64]
KINDS = ["sum", "mul", "min", "max", "and", "or", "xor", "average"]
GROUPS = ["world", "equal", "unequal", "partial", "scrambled"]

BAD: dict[str, list[Any]] = {
    "op": [*NOT_STRINGS, None, "", "gather", "all-gather", "ALL_GATHER", "all_gather ", "\ud800"],
    "target": [*NOT_STRINGS, "", ":", "tpu:v5e:2xx4", "tpu:v5e:0x4", "cpu:1:2:3", "\ud800"],
    "dtype": [*NOT_STRINGS, "float32", "f32", float, torch.strided, torch.qint8, torch.complex32],
    "reduce_type": [*NOT_STRINGS, None, "", "avg", "SUM", "add", "sum ", "\ud800"],
    "groups": [*NOT_STRINGS, None, "", "World", "all", [[0, 1]], "world ", "\ud800"],
    "native": [*NOT_STRINGS[:2], *NOT_STRINGS[3:], None, "True", 1, 0],
    "why": [*NOT_STRINGS, None],
}
# None of those: what each function takes for "no answer given".
OPTIONAL = {"register": ("dtype", "reduce_type", "groups")}


def policies(spoiler: Spoiler) -> Iterator[Call]:
    """`fallback` of every function that has it, and of the context manager."""
    x = spoiler.good
    matrix = [[4] * 2] * 2
    calls: dict[str, Callable[[Any], Any]] = {
        "all_reduce": lambda p: xm.all_reduce("sum", x, fallback=p),
        "all_gather": lambda p: xm.all_gather(x, fallback=p),
        "reduce_scatter": lambda p: xm.reduce_scatter("sum", x, fallback=p),
        "all_gather_bucketized": lambda p: xm.all_gather_bucketized([x], fallback=p),
        "reduce_scatter_bucketized": lambda p: xm.reduce_scatter_bucketized("sum", [x], fallback=p),
        "all_to_all": lambda p: xm.all_to_all(x, 0, 0, fallback=p),
        "collective_permute": lambda p: xm.collective_permute(x, [(0, 1)], fallback=p),
        "collective_broadcast": lambda p: xm.collective_broadcast([x], fallback=p),
        "uneven_all_gather": lambda p: xm.uneven_all_gather(x, [8, 8], fallback=p),
        "uneven_reduce_scatter": lambda p: xm.uneven_reduce_scatter("sum", x, [4, 4], fallback=p),
        "uneven_all_to_all": lambda p: xm.uneven_all_to_all(x, matrix, fallback=p),
        "send": lambda p: xm.send(x, Channel([(0, 1)]), fallback=p),
        "recv": lambda p: xm.recv(x, Channel([(0, 1)]), fallback=p),
    }
    for (name, call), policy in itertools.product(calls.items(), NOT_POLICIES):
        about = f"{name} fallback={show(policy)}"
        yield Call("fallback", ("policy",), lambda c=call, p=policy: c(p), about)
    for policy in [*NOT_POLICIES, None]:
        about = f"fallback({show(policy)})"
        yield Call("fallback", ("policy",), lambda p=policy: _enter(p), about)


def _enter(policy: Any) -> None:
    with torch_xla_cc.fallback(policy):
        pass


def questions(rng: random.Random, count: int) -> Iterator[Call]:
    """supports, explain and register with one bad argument."""
    for _ in range(count):
        function = rng.choice(["supports", "explain", "register"])
        op = rng.choice(OPS)
        args: dict[str, Any] = {
            "op": op,
            "target": rng.choice(TARGETS[:5] if function == "register" else TARGETS),
            "dtype": rng.choice(DTYPES),
            "groups": "ring" if op in OPS[5:8] else rng.choice(GROUPS),
        }
        if "reduce" in op:
            args["reduce_type"] = rng.choice(KINDS)
        if function == "register":
            args |= {"native": rng.random() < 0.5, "why": "a test"}
        field = rng.choice(list(args))
        bad = BAD[field]
        if field in OPTIONAL.get(function, ()):
            bad = [value for value in bad if value is not None]
        args[field] = rng.choice(bad)
        about = f"{function} of {op}, {field}={show(args[field])}"
        yield Call(function, (field,), _asking(function, args), about)


def _asking(function: str, args: dict[str, Any]) -> Callable[[], Any]:
    return lambda: getattr(capabilities, function)(**args)
