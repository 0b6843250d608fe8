"""Runs collectives on CPU devices, one a thread; one that dies costs its process only.

Each rank runs a program of its own, as ranks on threads may. Lists of cells come as lines on stdin,
each for one program; unless the process dies of it, it is answered by one outcome, a line of JSON,
to the file descriptor that the command line names.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Callable

import torch
import torch_xla

from torch_xla_cc import _C
from torch_xla_cc._threads.launch import launch
from torch_xla_cc.capabilities._emit import forced
from torch_xla_cc.capabilities._expected import DTYPES, expected, operands, same
from torch_xla_cc.capabilities._grid import Cell, fields
from torch_xla_cc.capabilities._outcome import NATIVE, REFUSED, WRONG, Outcome
from torch_xla_cc.capabilities._results import normalised


def _put(x: torch.Tensor) -> torch.Tensor:
    """To the device. torch_xla drops the imaginary part of a c128 on the way."""
    if x.dtype != torch.complex128:
        return x.to(torch_xla.device())
    return torch.view_as_complex(torch.view_as_real(x).to(torch_xla.device()))


def _take(x: torch.Tensor) -> torch.Tensor:
    """From the device."""
    if x.dtype != torch.complex128:
        return x.cpu()
    return torch.view_as_complex(torch.view_as_real(x).cpu().contiguous())


def _run(rank: int, cells: list[Cell], world: int) -> bool:
    """Whether this rank gets what it should from all cells, which are one program."""
    # A constant of its own makes this rank's program another than its peers'.
    own = torch.full((rank + 2,), rank + 3.0, device=torch_xla.device()) * 2
    got = [_call(cell, rank, world) for cell in cells]
    torch_xla.sync()
    if own.cpu().sum().item() != 2 * (rank + 2) * (rank + 3):
        return False
    return all(
        same(cell, _take(x).to(DTYPES[cell.type]), wanted)
        for cell, results in zip(cells, got, strict=True)
        for x, wanted in zip(results, expected(cell, rank, world), strict=True)
    )


def _call(cell: Cell, rank: int, world: int) -> list[torch.Tensor]:
    mine = [_put(x) for x in operands(cell, rank, world)]
    if cell.op == "parameter":
        return [x.clone() for x in mine]
    arguments = fields(cell, world)
    with forced("native"):
        if cell.op not in ("send", "recv"):
            return list(getattr(_C, cell.op)(mine, *arguments))
        sent = _C.send(mine, *arguments)
        return list(_C.recv(sent, *arguments))


def _outcome(cells: list[Cell], world: int) -> Outcome:
    try:
        right = launch(_run, (cells, world), nprocs=world, timeout_s=30)
    except _C.RanksDisagree as error:
        return Outcome(WRONG, says=normalised(str(error)))
    except Exception as error:
        # What a failed program leaves behind belongs to no later one.
        broken = "tensor_data" in str(error)
        return Outcome(WRONG if broken else REFUSED, says=normalised(str(error)))
    finally:
        # The traceback held the tensors that were never made; their graph would be run again.
        gc.collect()
    return Outcome(NATIVE) if all(right) else Outcome(WRONG)


_PR_SET_PDEATHSIG = 1


def main(answer: Callable[[str], object], world: int) -> None:
    """Answer each line of stdin."""
    for line in sys.stdin:
        cells = [Cell(*cell.split()) for cell in json.loads(line)]
        answer(json.dumps(_outcome(cells, world)) + "\n")


if __name__ == "__main__":
    # Ranks that wait for each other notice nothing; they are not to outlive who asked.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with os.fdopen(int(sys.argv[1]), "w", buffering=1) as _answers:
        main(_answers.write, int(sys.argv[2]))
        os._exit(0)
