"""What a rank does for others while it has nothing to run itself (agreement.py)."""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
import warnings
from datetime import timedelta

from torch_xla_cc._processes import living_tensors, waits, world
from torch_xla_cc._processes.agreement import Agreement
from torch_xla_cc._processes.rounds import Poke, Rounds
from torch_xla_cc._runtime.private import c10d_bindings
from torch_xla_cc._threads import progress, read_hooks

_LOOK_S = 0.02
_ENDS_S = 5.0
_STEPS_QUIET_MS = 2000  # others can go on tracing, if nobody reads: rather come there, and be one

_listening: tuple[Rounds, threading.Thread] | None = None


def begin(group: str, store: c10d_bindings.Store, rank: int, size: int, limit: timedelta) -> None:
    """From now on the ranks of this world agree on what they run; and this one listens."""
    read_hooks.stand()
    device = read_hooks.default_rank()
    run = functools.partial(read_hooks.run_all, device)
    living_tensors.watch()
    rounds = Rounds(store, rank, size, limit)
    agreed = world.begin(Agreement(rounds, device, run), group)
    global _listening
    end()
    thread = threading.Thread(target=_listen, args=(agreed, os.getpid()), daemon=True)
    thread.start()
    _listening = agreed.rounds, thread


def end() -> None:
    """Listen no longer, for a world that has ended, or where the process ends.

    A thread that comes back from C++ to an interpreter that has ended aborts the process.
    """
    if _listening is None:
        return
    rounds, thread = _listening
    if thread.is_alive():  # it is not in a process that was forked
        rounds.stop_listening()
        rounds.leave()
        thread.join(_ENDS_S)


def _listen(agreed: Agreement, pid: int) -> None:
    with waits.listening():
        while os.getpid() == pid and world.current() is agreed:
            poke = agreed.rounds.listen()
            if poke is None:
                return  # the store has gone, or the process ends
            if agreed.poked(poke):
                try:
                    _answer(agreed, poke)
                except Exception as error:  # who reads is told by what it reads
                    if not agreed.rounds.listens:
                        return  # this rank has left
                    warnings.warn(f"torch_xla_cc: while others waited: {error}", stacklevel=2)


def _answer(agreed: Agreement, poke: Poke) -> None:
    since = time.monotonic()
    rounds = agreed.rounds
    while rounds.listens and rounds.number <= poke.round and world.current() is agreed:
        if (more := rounds.listen(wait=False)) is not None:
            agreed.poked(more)
            poke = more if more.reads or more.round > poke.round else poke
        agreed.poked(poke)  # its next call is to answer
        with progress.running_for_others() as goes_on:
            if not goes_on:
                return  # the process ends
            progress.when_idle(
                functools.partial(agreed.try_answer, waits.idle_kind()),
                progress.QUIET_MS if poke.reads else _STEPS_QUIET_MS,
                insists=time.monotonic() - since > progress.INSISTS_S,
            )
        time.sleep(_LOOK_S)


atexit.register(end)
