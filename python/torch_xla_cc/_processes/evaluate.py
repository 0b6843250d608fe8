"""What pending tensors are, computed beside the graph, which stays as it is.

torch_xla runs a tensor's whole graph. Here the results of calls that have run already are taken as
known, and other tensors that need the same values keep their part of the graph.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from torch_xla_cc._hlo import cut
from torch_xla_cc._runtime import environment
from torch_xla_cc._runtime.private import XLAC

_KEPT = 1024  # programs
# Graphs: as many as torch_xla keeps programs of, less what it has of graphs that are not whole.
_RUN = max(1, environment.number("XLA_COMPILATION_CACHE_SIZE", 2048) // 2)
_NAME = "known::evaluated"  # torch_xla wants a namespace
# As they are before hooks stand before them.
_sync_multi = XLAC._xla_sync_multi
_graph_hash = XLAC._get_graph_hash


@dataclass(frozen=True)
class Program:
    """What computes some tensors from results that are known."""

    name: bytes  # the same for what computes the same, on every rank
    computation: Any  # of torch_xla
    has_collective: bool


class Chosen(NamedTuple):
    """A program, and what it takes here."""

    program: Program
    inputs: tuple[int, ...]  # of (data of the graph, results)
    had: int  # data of the graph

    @property
    def used(self) -> list[int]:
        """The results that it takes."""
        return [one - self.had for one in self.inputs if one >= self.had]


_chosen: dict[bytes, Chosen] = {}  # by the module that they were cut from
_programs: dict[bytes, Program] = {}
_run: dict[bytes, bytes] = {}  # programs that torch_xla has run, by its hash of the graph


def program(roots: list[torch.Tensor], results: list[torch.Tensor]) -> Chosen:
    """Computes `roots`, which are pending, from what of the results they need first."""
    # Not by torch_xla's hash: (a + a) * b and (a + b) * b have the same.
    module: bytes = XLAC._get_xla_tensors_hlo_proto([*roots, *results])
    whole = hashlib.sha256(module).digest() + f" {len(roots)}".encode()
    if whole not in _chosen:
        if len(_chosen) >= _KEPT:
            _chosen.clear()
        of_roots = cut.outputs_as_parameters(module, len(roots))
        _chosen[whole] = Chosen(_program(of_roots.module), of_roots.inputs, of_roots.had)
    return _chosen[whole]


def _program(module: bytes) -> Program:
    name = hashlib.sha256(module).digest()
    if name not in _programs:
        if len(_programs) >= _KEPT:
            _programs.clear()
        computation = XLAC._xla_op_computation_from_module_proto(_NAME, module)
        _programs[name] = Program(name, computation, cut.has_collective(module))
    return _programs[name]


def run(
    chosen: Chosen,
    roots: list[torch.Tensor],
    results: list[torch.Tensor],
    values: list[torch.Tensor],
) -> list[torch.Tensor]:
    """New tensors of what the roots are; `values` are those results that the program takes."""
    # Donation and random numbers are as if nothing had run: the graph's own data is only read.
    _, data = XLAC._get_tensors_xla_device_data_node([*roots, *results])
    taken = iter(values)
    inputs = [data[one] if one < chosen.had else next(taken) for one in chosen.inputs]
    if inputs:
        found = XLAC._xla_user_computation(_NAME, inputs, chosen.program.computation)
    else:  # torch_xla's computations take something; what needs nothing is as it is everywhere
        with torch.no_grad():
            found = [root.detach().clone() for root in roots]
    # torch_xla takes u16, u32 and u64 of a computation's result for s16, s32 and s64.
    found = [x.to(root.dtype) for x, root in zip(found, roots, strict=True)]
    sync(found)
    return found


def hashed(tensors: list[torch.Tensor]) -> bytes:
    """Of the graph that ends in them."""
    return bytes(_graph_hash(tensors)) if tensors else b""


def program_of(graph: bytes, tensors: list[torch.Tensor]) -> bytes:
    """What torch_xla runs for the graph of this hash: a name, the same on every rank.

    Its hash does not tell which ranks run the same: (a + a) * b and (a + b) * b have one. Of those
    that one rank has, torch_xla makes a program of the first, and runs that for the others too.
    """
    if not tensors:
        return b""
    if graph in _run:
        return _run[graph]
    module: bytes = XLAC._get_xla_tensors_hlo_proto(tensors)
    return hashlib.sha256(cut.outputs_as_parameters(module, len(tensors)).module).digest()


def will_run(graph: bytes, program: bytes) -> None:
    """Such a graph runs: for those that follow torch_xla has this program, while it keeps it."""
    _run[graph] = _run.pop(graph, program)
    if len(_run) > _RUN:
        del _run[next(iter(_run))]  # that was run the longest ago, as torch_xla lets go of programs


def sync(tensors: list[torch.Tensor]) -> None:
    """Run what these wait for, and nothing else."""
    _sync_multi(tensors, [], wait=False, sync_xla_data=True)
