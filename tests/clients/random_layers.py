"""Random programs of two kinds of ranks: the same recipe on the CPU by gloo, and on XLA devices.

A recipe is plain data, drawn by hypothesis in the process of the tests. `compare` runs in a rank:
`model(kind, recipe)` gives tensors by name, first on "cpu" and then on "xla", and what is different
is told. What the client refuses on the CPU may be refused on XLA too, with no abort.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import processes
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

# Of a call. A recipe that the CPU refuses on some ranks alone has the others wait.
TIMEOUT_S = 30.0
# (Of float64: XLA's gelu is right to 1e-8.)
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.bfloat16: 6e-2, torch.float16: 1e-2}


class Outcome(NamedTuple):
    wrong: list[str]
    tried: int  # operations, or models
    refused: int  # of these, by the client on the CPU
    broken: bool = False  # the ranks are of no use: some alone were refused
    why: str = ""  # refused


class Refused(Exception):
    """The client on the CPU does not take the recipe."""


def run(size: int, fn: Callable[..., Outcome], *args: Any, timeout_s: float = 120.0) -> Outcome:
    """`fn(rank, *args)` on kept ranks; what is wrong on any of them is raised."""
    outcomes = processes.run(size, fn, *args, timeout_s=timeout_s)
    wrong = [f"rank {rank}: {line}" for rank, own in enumerate(outcomes) for line in own.wrong]
    if wrong or any(own.broken for own in outcomes):
        processes.close_all()
    assert not wrong, "\n".join(wrong[:8])
    return outcomes[0]


# Below: a rank.


def world() -> None:
    """Join the world of all recipes, if this process has not yet."""
    if dist.is_initialized():
        return
    import torch_xla

    import torch_xla_cc
    import torch_xla_cc.distributed
    from torch_xla_cc.adapters import dtensor

    torch_xla.device()  # a backward pass before it would leave autograd without its queue
    torch_xla_cc.install()
    dtensor.install()
    dist.init_process_group("cpu:gloo,xla:xla_cc", timeout=datetime.timedelta(seconds=TIMEOUT_S))


@functools.cache
def mesh(kind: str, shape: tuple[int, ...]) -> DeviceMesh:
    """A mesh whose groups have that time limit too."""
    ranks = torch.arange(dist.get_world_size()).reshape(shape)
    names = ("first", "second")[: len(shape)]
    return DeviceMesh.from_group(list(_groups(shape)), kind, ranks, mesh_dim_names=names)


@functools.cache
def _groups(shape: tuple[int, ...]) -> tuple[dist.ProcessGroup, ...]:
    """This rank's group of each dimension."""
    found = []
    for dim, size in enumerate(shape):
        lines = torch.arange(dist.get_world_size()).reshape(shape).movedim(dim, -1)
        for line in lines.reshape(-1, size).tolist():
            group = dist.new_group(line, timeout=datetime.timedelta(seconds=TIMEOUT_S))
            found += [group] if dist.get_rank() in line else []
    return tuple(found)


def of_all(mine: Any) -> list[Any]:
    """What every rank says, by rank."""
    said: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(said, mine)
    return said


def error_of(attempt: Callable[[], Any]) -> tuple[Any, str | None]:
    """What it gives, or the words of its error."""
    try:
        return attempt(), None
    except Exception as error:
        return None, f"{type(error).__name__}: {str(error)[:600]}"


def compare(
    rank: int, recipe: Any, model: Callable[[str, Any], dict[str, torch.Tensor]]
) -> Outcome:
    """The model's tensors on XLA are those on the CPU, or it is refused on the CPU."""
    world()
    expected, error = error_of(lambda: model("cpu", recipe))
    said, lost = error_of(lambda: of_all(error))
    if lost or (any(said) and not all(said)):
        return Outcome([], 1, 1, broken=True, why=f"{lost} {error}")
    found, own_error = error_of(lambda: model("xla", recipe))
    if error:
        return Outcome([], 1, 1, why=error)
    if own_error:
        return Outcome([f"on XLA, and not on the CPU: {own_error}"], 1, 0)
    return Outcome(differences(expected, found), 1, 0)


def differences(
    expected: dict[str, torch.Tensor], found: dict[str, torch.Tensor], most: float = 0.0
) -> list[str]:
    """What is not the same, by name, within what the dtype rounds, or `most`."""
    wrong = [f"on one kind alone: {name}" for name in sorted(expected.keys() ^ found.keys())]
    for name in [name for name in expected if name in found]:
        x, y = expected[name].detach(), found[name].detach()
        if x.shape != y.shape or x.dtype != y.dtype:
            wrong.append(
                f"{name}: {x.dtype}{list(x.shape)} by gloo, {y.dtype}{list(y.shape)} on XLA"
            )
        elif not close(x, y, most):
            wrong.append(f"{name}: {_short(x)} by gloo, {_short(y)} on XLA")
    return wrong


def _short(x: torch.Tensor) -> str:
    return f"{list(x.shape)} {x.flatten()[:24].tolist()}"


def close(x: torch.Tensor, y: torch.Tensor, most: float = 0.0) -> bool:
    """Relative to the largest number of the tensor: sums have their parts in any order."""
    if not x.dtype.is_floating_point:
        return torch.equal(x, y)
    relative = max(TOLERANCE[x.dtype], most)
    x, y = x.double(), y.double()
    finite = x[x.isfinite()].abs()
    largest = max(1.0, finite.max().item()) if finite.numel() else 1.0
    return torch.allclose(x, y, rtol=relative, atol=relative * largest, equal_nan=True)


def numbers(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The same on all ranks and kinds."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@contextlib.contextmanager
def ended(kind: str) -> Iterator[None]:
    """A run of which nothing stays pending on the device."""
    try:
        yield
    finally:
        if kind == "xla":
            import torch_xla

            torch_xla.sync(wait=True)
