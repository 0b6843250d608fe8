"""How ranks of a world hear of each other what each would run: a round, in which all say it.

A round is one small all_gather of gloo. Who has waited in it for a moment pokes the others, by a
counter in the store: they may have nothing to run, and come only to answer.
"""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from typing import NamedTuple

import torch

from torch_xla_cc._runtime.private import c10d_bindings

_PATIENCE_S = 0.05  # before others are poked
_COMES_S = 1.0  # after an error: those that are not there by then are named
_ALWAYS = timedelta(days=365)  # the store prints a warning for each wait that ends without a key


class Poke(NamedTuple):
    """Somebody waits in a round."""

    round: int
    end: int  # until others have made so many calls, or cannot
    reads: bool  # else it would only run what it has


class RanksGone(RuntimeError):
    """Some ranks of the world have ended, or have not come in time."""


class Rounds:
    """Those of a world."""

    def __init__(self, store: c10d_bindings.Store, rank: int, size: int, limit: timedelta) -> None:
        self.rank, self.size = rank, size
        self.number = 0
        self.limit = limit
        self._store = c10d_bindings.PrefixStore("rounds", store)
        self._listens = self._store.clone()  # its own connection: it waits in it
        self._poked = 0
        self.listens = True  # until the process ends
        self._gloo = c10d_bindings.ProcessGroupGloo(
            c10d_bindings.PrefixStore("gloo", self._store), rank, size, limit
        )

    def meet(self, said: list[int], poke: Poke | None) -> list[list[int]]:
        """What each rank says in this round, once all have. Raises RanksGone."""
        own = torch.tensor(said, dtype=torch.int64, device="cpu")
        all_of_them = [torch.empty_like(own) for _ in range(self.size)]
        try:
            if self._gloo is None:
                raise RuntimeError("this rank has left")
            work = self._gloo.allgather([all_of_them], [own])
            end = time.monotonic() + _PATIENCE_S
            while not work.is_completed() and time.monotonic() < end:
                time.sleep(0.0002)
            if not work.is_completed():
                self._store.set(f"here/{self.rank}", str(self.number))
                if poke is not None:
                    self._poke_all(poke)
            work.wait()
        except RuntimeError as error:
            raise RanksGone(self._who(error)) from error
        self.number += 1
        return [x.tolist() for x in all_of_them]

    def _poke_all(self, poke: Poke) -> None:
        number = self._store.add("pokes", 1)
        self._store.set(f"poke/{number}", f"{poke.round} {poke.end} {poke.reads:d}")

    def leave(self) -> None:
        """Have the others hear that this rank will not come any more."""
        self._gloo = None

    def _who(self, error: RuntimeError) -> str:
        missing = [rank for rank in range(self.size) if rank != self.rank]
        end = time.monotonic() + _COMES_S
        try:
            self._store.set(f"here/{self.rank}", str(self.number))
            while missing and time.monotonic() < end:
                missing = [rank for rank in missing if not self._is_here(rank)]
                time.sleep(0.01)
        except RuntimeError:
            return f"the store of the world is gone: {error}"
        return (
            f"rank {self.rank} would run what it has pending, calls of torch.distributed among it, "
            f"and {f'ranks {missing} have' if missing else 'a rank has'} ended, or not come to run "
            f"theirs within {self.limit.total_seconds():g} s: {error}"
        )

    def _is_here(self, rank: int) -> bool:
        """Whether it has come to this round."""
        key = f"here/{rank}"
        return self._store.check([key]) and int(self._store.get(key)) == self.number

    def listen(self, *, wait: bool = True) -> Poke | None:
        """The next poke; None if there is none to wait for. For one thread."""
        key = f"poke/{self._poked + 1}"
        try:
            if not wait and not self._listens.check([key]):
                return None
            self._listens.wait([key], _ALWAYS)
        except RuntimeError:
            return None
        if not self.listens:
            return None
        self._poked += 1
        number, end, reads = map(int, self._listens.get(key).split())
        return Poke(number, end, bool(reads))

    def stop_listening(self) -> None:
        """Have the thread that listens come back, with nothing."""
        self.listens = False
        with contextlib.suppress(RuntimeError):  # without a store it has
            self._poke_all(Poke(-1, 0, reads=False))  # of no round: others do nothing
