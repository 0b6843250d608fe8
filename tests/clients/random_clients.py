"""Random training runs: what a recipe is, and what of it is compared between two devices.

`both` trains the same recipe in each rank's process, on CPU tensors by gloo and on its XLA device,
and returns what each saw: losses, gradients, parameters, state dicts; or the error.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import os
import re
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import client_engines
import client_kinds
import hypothesis.strategies as st
import torch
import torch.distributed as dist
import torch_xla
from random_models import Model, batch, models

Seen = dict[str, "torch.Tensor | None"]


@dataclass(frozen=True)
class Recipe:
    client: str  # of client_engines.KINDS
    size: int
    model: Model
    rows: tuple[int, ...]  # of each rank's batches
    options: dict[str, Any] = field(default_factory=dict)  # of the client
    steps: int = 2
    accumulate: int = 1  # backward passes of a step
    forwards: int = 1  # of a backward pass
    optimizer: str = "sgd"
    foreach: bool | None = None
    clip: bool = False
    evaluates: bool = False  # forward passes between steps, without gradients
    resumes: int = 0  # the step before which all goes into another model, if any
    ends_steps: bool = True  # adapters.optimizers


@st.composite
def recipes(draw: st.DrawFn, client: str) -> Recipe:
    kind = client_engines.KINDS[client]
    size = draw(st.sampled_from([2, 3, 4, 1]))
    options = draw(kind.options(size))
    # What the client refuses comes now and then.
    kinds = list(kind.layers)
    if draw(st.integers(0, 15)) == 15:
        kinds += ["scale", "empty", "unused", "aside", "buffered"]
    few = st.integers(1, 5)
    rows = draw(st.one_of(few.map(lambda n: (n,) * size), st.tuples(*[few] * size)))
    model = kind.fit(draw(models(kinds, mixes=kind.mixes)), options)
    # Of no rows torch_xla's own layer_norm has no gradient.
    if all(layer.kind != "norm" for layer in model.layers) and draw(st.integers(0, 5)) == 5:
        rows = (0, *rows[1:])
    resumes = draw(st.sampled_from([0, 0, 1]))
    return Recipe(
        client=client,
        size=size,
        model=model,
        rows=rows,
        options=options,
        steps=draw(st.integers(2, 4)),
        accumulate=draw(st.sampled_from([1, 1, 2, 3])),
        forwards=draw(st.sampled_from([1, 1, 1, 2])),
        optimizer=draw(st.sampled_from(["sgd", "adamw"])),
        foreach=draw(st.sampled_from([None, True, False])),
        clip=draw(st.booleans()),
        evaluates=draw(st.booleans()),
        resumes=resumes,
        # Only with that adapter is the state of ZeroRedundancyOptimizer consolidated. Without it
        # ranks that receive raise, and those that send wait for them until the timeout.
        ends_steps=draw(st.sampled_from([True, True, False])) or (client == "zero" and resumes > 0),
    )


def copy(x: Any) -> torch.Tensor | None:
    """What a rank has of it, on the host."""
    if hasattr(x, "local_shards"):  # ShardedTensor
        shards = [shard.tensor.detach().cpu().reshape(-1) for shard in x.local_shards()]
        return torch.cat(shards) if shards else torch.zeros(0)
    if not isinstance(x, torch.Tensor):
        return None if x is None else torch.tensor(float(x))
    local = x.to_local() if hasattr(x, "to_local") else x
    return local.detach().cpu().clone()


def note(seen: Seen, what: str, tensors: Any) -> None:
    tensors = list(tensors)
    torch_xla.sync()  # read one by one they may be wrong: tests/python/test_graph_hashes.py
    for name, x in tensors:
        seen[f"{what} of {name}"] = copy(x)


def objective(y: torch.Tensor) -> torch.Tensor:
    """A sum, so that a batch may be empty.

    What is squared is far from 0: of a small difference in bf16, and so of its gradient, most is
    rounding.
    """
    y = y if y.dtype == torch.float64 else y.float()
    return (y - 4).square().sum() / (32 * y.shape[-1])


def train(recipe: Recipe, device: torch.device, seen: Seen) -> None:
    client = client_engines.KINDS[recipe.client](recipe, device)
    rows = recipe.rows[dist.get_rank()]
    for step in range(recipe.steps):
        if recipe.resumes and step == recipe.resumes:
            client = client.resumed()
        for part in range(recipe.accumulate):
            with client.part(last=part == recipe.accumulate - 1):
                loss = torch.zeros((), device=device)
                for forward in range(recipe.forwards):
                    seed = dist.get_rank() + 10 * forward + 100 * part + 1000 * step
                    x = batch(recipe.model, rows, seed).to(device)
                    loss = loss + objective(client.model(x))
                client.backward(loss)
                note(seen, f"step {step}, part {part}", [("loss", loss)])
        note(seen, f"step {step}: gradient", client.gradients())
        if recipe.clip:
            note(seen, f"step {step}", [("norm", client.clip(0.1))])
        client.step()
        note(seen, f"step {step}: parameter", client.parameters())
        if recipe.evaluates:
            client.model.eval()
            with torch.no_grad():
                y = client.model(batch(recipe.model, 2, step).to(device))
            client.model.train()
            note(seen, f"step {step}", [("evaluation", y)])
    note(seen, "state", client.state().items())


_store: Any = None
_worlds: collections.Counter[tuple[object, int]] = collections.Counter()


@contextlib.contextmanager
def world(rank: int, size: int, name: object) -> Iterator[None]:
    """One of its own for each training run, in the first ranks of those that are there."""
    global _store
    _worlds[name, size] += 1  # in the store too: gloo would find the addresses of one before
    if _store is None:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        _store = dist.TCPStore(address, port, is_master=False)
    sizes = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    with mock.patch.dict(os.environ, sizes):
        dist.init_process_group(
            "cpu:gloo,xla:xla_cc",
            store=dist.PrefixStore(f"run {name}, {size} ranks, {_worlds[name, size]}", _store),
            rank=rank,
            world_size=size,
            timeout=datetime.timedelta(seconds=60),
        )
        try:
            yield
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


def both(rank: int, recipe: Recipe, number: int) -> tuple[tuple[Seen, str], ...] | None:
    """What gloo and XLA show of a recipe, and each's error. Nothing of ranks that it has not."""
    client_kinds.device("xla")  # before the first backward pass: see docs/clients/README.md
    if rank >= recipe.size:  # it is of the pod all the same, which starts when all have come
        return None
    warnings.simplefilter("ignore")
    found = []
    for run, kind in enumerate(("cpu", "xla")):
        seen: Seen = {}
        error = ""
        with world(rank, recipe.size, 2 * number + run):
            try:
                with client_engines.KINDS[recipe.client].on(kind, recipe):
                    train(recipe, client_kinds.device(kind), seen)
            except Exception as raised:
                where = traceback.format_exc()[-2000:]
                error = f"{type(raised).__name__}: {raised}\n{where}"
        found.append((seen, error))
    return tuple(found)


# How far two may be from each other: of the largest element of the tensor, and of the largest of
# all tensors of that kind, since much of a gradient may have been taken away from itself. In bf16
# kernels of the CPU add up in bf16, and XLA in f32.
LIMITS = {"f64": (1e-4, 2e-6), "f32": (1e-4, 1e-5), "bf16": (0.12, 0.05)}


def differences(recipe: Recipe, rank: int, cpu: Seen, xla: Seen, both_failed: bool) -> list[str]:
    """What a rank's two runs show that is not the same."""
    if both_failed:  # as far as both came
        cpu = {key: x for key, x in cpu.items() if key in xla}
        xla = {key: x for key, x in xla.items() if key in cpu}
    if list(cpu) != list(xla):
        missing = [k for k in cpu if k not in xla] + [k for k in xla if k not in cpu]
        return [f"rank {rank}: on one device alone: {missing[:4]}"]
    of_tensor, of_all = LIMITS["bf16" if client_kinds.is_rough(recipe) else "f32"]
    largest: dict[str, float] = {}
    for name, x in cpu.items():
        kind = name.split(" of ")[0]
        largest[kind] = max(largest.get(kind, 0), _most(x))
    wrong = []
    for name, x in cpu.items():
        y = xla[name]
        if x is None or y is None:
            if x is not y:
                wrong.append(f"rank {rank}, {name}: {_shown(y)}, by gloo {_shown(x)}")
        elif x.shape != y.shape or x.dtype != y.dtype:
            wrong.append(f"rank {rank}, {name}: {_kind(y)}, by gloo {_kind(x)}")
        else:
            limit = of_tensor * _most(x) + of_all * largest[name.split(" of ")[0]]
            distance = (x.double() - y.double()).abs()
            if x.numel() and not bool((distance <= limit).all()):
                wrong.append(f"rank {rank}, {name}: {_shown(y)}, by gloo {_shown(x)}")
    return wrong


def _most(x: torch.Tensor | None) -> float:
    return 0.0 if x is None or not x.numel() else float(x.double().abs().max())


def _kind(x: torch.Tensor) -> str:
    return f"{x.dtype} of {list(x.shape)}"


def _shown(x: torch.Tensor | None) -> str:
    return re.sub(r"\s+", " ", str(x))[:200]
