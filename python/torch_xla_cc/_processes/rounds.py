"""How ranks of a world hear of each other what each would run: a round, in which all say it.

A round is one small all_gather of gloo, which goes around a ring; in a large world the ranks are in
rows and columns, and it goes around a row, then a column. Who has waited in it for a moment pokes
the others, by a counter in the store: they may have nothing to run, and come only to answer.
"""

from __future__ import annotations

import contextlib
import math
import time
from datetime import timedelta
from typing import NamedTuple

import torch

from torch_xla_cc._runtime.private import c10d_bindings

_PATIENCE_S = 0.05  # before others are poked
_COMES_S = 1.0  # after an error: those that are not there by then are named
_LEAST_GRID = 17  # ranks
_KEPT = 1000  # pokes
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
        # A connection of its own: the script may wait in the world's, which is then held.
        self._store = c10d_bindings.PrefixStore("rounds", store).clone()
        self._listens = self._store.clone()  # its own connection: it waits in it
        self._heard = 0
        self._poked_by = ""  # the key by which this rank was the first to say a poke
        self.listens = True  # until the process ends
        columns = _columns(size)
        row, column = divmod(rank, columns)
        self._rings = [self._ring(f"row{row}", column, columns)]
        if columns < size:
            self._rings.append(self._ring(f"column{column}", row, size // columns))

    def _ring(self, name: str, rank: int, size: int) -> c10d_bindings.ProcessGroupGloo:
        store = c10d_bindings.PrefixStore(name, self._store)
        return c10d_bindings.ProcessGroupGloo(store, rank, size, self.limit)

    def meet(self, said: list[int], poke: Poke | None) -> list[list[int]]:
        """What each rank says in this round, once all have. Raises RanksGone."""
        found = torch.tensor([said], dtype=torch.int64, device="cpu")
        end = time.monotonic() + _PATIENCE_S
        ring: c10d_bindings.ProcessGroupGloo | None
        work: c10d_bindings.Work | None
        try:
            if not self._rings:
                raise RuntimeError("this rank has left")
            for ring in self._rings:
                of_ring = [torch.empty_like(found) for _ in range(ring.size())]
                work = ring.allgather([of_ring], [found])
                while not work.is_completed() and time.monotonic() < end:
                    time.sleep(0.0002)
                if not work.is_completed():
                    self._store.set(f"here/{self.rank}", str(self.number))
                    if poke is not None:
                        self._poke_all(poke)
                        poke = None
                work.wait()
                found = torch.cat(of_ring)
        except RuntimeError as error:
            ring = work = None  # else who keeps the error keeps the connections
            raise RanksGone(self._who(error)) from error
        self.number += 1
        by_rank: list[list[int]] = found.tolist()
        return by_rank

    def _poke_all(self, poke: Poke) -> None:
        """Once for all that wait alike: each rank hears of it."""
        text = f"{poke.round} {poke.end} {poke.reads:d}"
        key = f"poked/{text}"
        if self._store.add(key, 1) > 1:
            return
        number = self._store.add("pokes", 1)
        self._store.set(f"poke/{number}", text)
        if number > _KEPT:
            self._store.delete_key(f"poke/{number - _KEPT}")
        if self._poked_by:
            self._store.delete_key(self._poked_by)
        self._poked_by = key

    def leave(self) -> None:
        """Have the others hear that this rank will not come any more."""
        self._rings = []

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
        try:
            newest = self._listens.add("pokes", 0)
            if newest - self._heard > _KEPT // 2:  # older ones are of rounds that have ended
                self._heard = newest - 1
            key = f"poke/{self._heard + 1}"
            if not wait and not self._listens.check([key]):
                return None
            self._listens.wait([key], _ALWAYS)
            if not self.listens:
                return None
            self._heard += 1
            number, end, reads = map(int, self._listens.get(key).split())
        except RuntimeError:
            return None
        return Poke(number, end, bool(reads))

    def stop_listening(self) -> None:
        """Have the thread that listens come back, with nothing."""
        self.listens = False
        with contextlib.suppress(RuntimeError):  # without a store it has
            self._poke_all(Poke(-1, self.rank, reads=False))  # of no round: others do nothing


def _columns(size: int) -> int:
    """How many ranks are in a row: as near to the root as divides them, in a large world."""
    if size < _LEAST_GRID:
        return size
    return next(size // rows for rows in range(math.isqrt(size), 0, -1) if size % rows == 0)
