"""Plays a random program of DTensors on both kinds of ranks: random_dtensors.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import random_dtensors as dtensors
import random_layers as layers
import torch
from torch.distributed.tensor import DTensor


class Played:
    """A program on one kind: what it refuses is said by all, and its tensors."""

    def __init__(
        self, program: dtensors.Program, kind: str, refused: dict[str, bool] | None = None
    ) -> None:
        self.machine = dtensors.Machine(program, layers.mesh(kind, program.mesh), kind)
        self.refused: dict[str, bool] = {}  # what, and whether by all ranks
        self.wrong: list[str] = []
        self._known = refused

    def attempt(self, what: str, fn: Callable[[], Any]) -> Any:
        """What it gives; None if it is refused, which on XLA is wrong where the CPU takes it."""
        if self._known is not None and not self._known.get(what, True):
            return None  # some ranks alone would do it
        leaves = len(self.machine.leaves)
        made, error = layers.error_of(fn)
        if self._known is None:
            errors = layers.of_all(error)
            if any(errors):
                self.refused[what] = all(errors)
        elif error and what not in self._known:
            self.wrong.append(f"{what} on XLA, and not on the CPU: {error}")
        if error or what in (self._known or self.refused):
            del self.machine.leaves[leaves:]
            return None
        return made

    def play(self) -> None:
        m = self.machine
        for number, step in enumerate(m.program.steps):
            made = self.attempt(f"step {number} ({step.name})", functools.partial(_step, m, step))
            if made is not None:
                m.made.append(made)
        losses = []
        for number, x in enumerate(m.made):
            if x.requires_grad and x.dtype.is_floating_point:
                loss = self.attempt(f"loss {number}", functools.partial(_loss, number, x))
                losses += [] if loss is None else [loss]
        if losses:
            self.attempt("backward", lambda: sum(losses[1:], losses[0]).backward())
        updated = [x for x in m.leaves if x.grad is not None]
        if m.program.updates and updated:
            optimizer = getattr(torch.optim, m.program.updates)(updated, lr=0.01)
            self.attempt("update", optimizer.step)

    def tensors(self) -> dict[str, DTensor]:
        m = self.machine
        gradients = {f"gradient {i}": x.grad for i, x in enumerate(m.leaves) if x.grad is not None}
        made = {f"made {i}": x.detach() for i, x in enumerate(m.made)}
        return {**gradients, **made, **{f"leaf {i}": x.detach() for i, x in enumerate(m.leaves)}}


def _step(m: dtensors.Machine, step: dtensors.Step) -> DTensor:
    made = m.step(step)
    if not isinstance(made, DTensor) or made.to_local().device.type != m.kind:
        raise TypeError(f"gives {type(made)} on {getattr(made, 'device', None)}")
    if made.numel() > 20_000:
        raise layers.Refused
    return made


def _loss(number: int, x: DTensor) -> DTensor:
    return (x.sum() * (number + 1), x.square().mean(), torch.tanh(x).sum())[number % 3].double()


def check(rank: int, program: dtensors.Program) -> layers.Outcome:
    """Play it on both kinds, and compare."""
    layers.world()
    tried = len(program.steps)
    by_cpu, lost = layers.error_of(lambda: Played(program, "cpu"))
    if not lost:
        _, lost = layers.error_of(by_cpu.play)
    expected, error = layers.error_of(lambda: _read(by_cpu))
    if lost or error:
        return layers.Outcome([], tried, tried, broken=True, why=f"{lost} {error}")
    with layers.ended("xla"):
        on_xla = Played(program, "xla", by_cpu.refused)
        _, lost = layers.error_of(on_xla.play)
        found, error = layers.error_of(lambda: _read(on_xla))
    wrong = [*on_xla.wrong, *(one for one in (lost, error) if one)]
    if not wrong:
        rounded = any(step.name == "float32" for step in program.steps)
        most = max(layers.TOLERANCE[by_cpu.machine.dtype], 1e-4 * rounded)
        wrong = layers.differences(expected, found, most)
    return layers.Outcome(wrong, tried, sum(what.startswith("step") for what in by_cpu.refused))


def _read(played: Played) -> dict[str, torch.Tensor]:
    """The tensors as wholes."""
    return {name: x.full_tensor().cpu() for name, x in played.tensors().items()}
