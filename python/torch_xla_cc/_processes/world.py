"""The agreement of this process with the other ranks of its world, if there is one."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torch_xla_cc import _C
from torch_xla_cc._processes.agreement import Agreement

_calls = _C.noted_calls
_of_this_process: Agreement | None = None


def begin(agreement: Agreement, group: str) -> Agreement:
    """It is that of this process, until the next, or the end of a group."""
    global _of_this_process
    _of_this_process = agreement
    _calls.start(group)
    return agreement


def current() -> Agreement | None:
    """That of this process, also while its ranks have given up."""
    if _of_this_process is None or not _of_this_process.is_of_this_process():
        return None
    return _of_this_process if _calls.on() or _calls.gave_up() else None


def active() -> Agreement | None:
    """That of this process, unless its ranks have given up."""
    return current() if _calls.on() else None


def calls_pending() -> bool:
    """Whether there are calls that ranks have to agree on."""
    return bool(_calls.count())


def settle() -> None:
    """Before something that runs by itself, behind all calls that were made."""
    if agreement := active():
        agreement.settle()


def answer_peers() -> None:
    """Before a call of this rank: others may wait for those that it has made."""
    if agreement := active():
        agreement.before_call()


def run_at_end(of_world: bool) -> None:
    """All that is pending, before a group ends: others may yet come to calls of it."""
    global _of_this_process
    agreement = current()
    if agreement is None:
        return
    try:
        if active():
            agreement.end()
    finally:
        if of_world:
            agreement.rounds.leave()
            _of_this_process = None


def run_alone(
    operands: list[torch.Tensor], attach: Callable[[list[torch.Tensor]], list[torch.Tensor]]
) -> list[torch.Tensor]:
    """The results of a call that is in no program of all ranks, once it has been run."""
    agreement = current()
    if agreement is None:  # the world has ended
        return attach(operands)
    return agreement.alone(operands, attach)
