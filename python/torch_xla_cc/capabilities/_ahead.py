"""Probing the compilers that work ahead of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import groupby

from .._aot import compile_many
from ._emit import module
from ._grid import Cell, Device, cells
from ._outcome import NATIVE, REFUSED, TIMEOUT, Outcome
from ._results import Probe, normalised, outcome_of

TIMEOUT_S = 60.0
# Where a compile takes 0.1 s one need not wait that long for a lock that never opens.
_SMALL_TIMEOUT_S = 20.0
_BATCH = 60


def probe(device: Device, todo: Sequence[Cell], jobs: int = 1) -> Iterator[list[Probe]]:
    """The outcomes of the cells, in the order in which they come."""
    parameters = _compile(device, [cell for cell in cells(device) if cell.op == "parameter"])
    # No program takes such a type; and after libtpu has refused one, the next compile never ends.
    unknown = {cell.type: outcome for cell, outcome in parameters if outcome.result != NATIVE}
    yield [found for found in parameters if found.cell in todo]
    rest = [cell for cell in todo if cell.op != "parameter"]
    yield [Probe(cell, unknown[cell.type]) for cell in rest if cell.type in unknown]
    rest = [cell for cell in rest if cell.type not in unknown]
    batches = [
        list(some) for _, some in groupby(rest, key=lambda cell: (cell.op, cell.form, cell.number))
    ]
    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(_probe_alike, device, some) for some in batches]):
            yield done.result()


def _probe_alike(device: Device, alike: list[Cell]) -> list[Probe]:
    """Cells that differ in type and kind."""
    first = [cell for cell in alike if cell.type == "f32"]
    rest = [cell for cell in alike if cell.type != "f32"]
    probes = _compile(device, first)
    if first and all(outcome.result == TIMEOUT for _, outcome in probes):
        # A minute each for all types would be hours.
        return probes + [Probe(cell, Outcome(TIMEOUT, says="as f32")) for cell in rest]
    for at in range(0, len(rest), _BATCH):
        probes += _compile(device, rest[at : at + _BATCH])
    return probes


def _compile(device: Device, some: list[Cell]) -> list[Probe]:
    modules: dict[Cell, bytes] = {}
    probes: list[Probe] = []
    for cell in some:
        try:
            modules[cell] = module(cell, device)
        except ValueError as error:  # no such native form
            probes.append(Probe(cell, Outcome(REFUSED, says=f"ours: {normalised(str(error))}")))
    limit = _SMALL_TIMEOUT_S if device.world <= 64 else TIMEOUT_S
    compiled = compile_many(list(modules.values()), device.target, timeout_s=limit)
    for cell, result in zip(modules, compiled, strict=True):
        outcome = outcome_of(result)
        if outcome.result == TIMEOUT and limit < TIMEOUT_S:
            (again,) = compile_many([modules[cell]], device.target, timeout_s=TIMEOUT_S)
            outcome = outcome_of(again)
        probes.append(Probe(cell, outcome))
    return probes
