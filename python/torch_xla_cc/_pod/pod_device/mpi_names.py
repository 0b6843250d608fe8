"""A library that jaxlib calls by MPI's names, as MPItrampoline has them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import FAILED_PRECONDITION, Refused
from .jaxlib_xla import xla

_SAID = 1024  # bytes


class Names:
    """That of this process. It can be begun once."""

    def __init__(self, path: Path) -> None:
        self.collectives: Any = xla.make_mpi_collectives()
        self.library = ctypes.CDLL(str(path))
        self.devices: dict[int, int] = {}  # of ranks, as jaxlib numbers them

    def check(self, call: str, error: int) -> None:
        """Raise what it says of the error, if it is one."""
        if error:
            text = ctypes.create_string_buffer(_SAID)
            self.library.MPIABI_Error_string(error, text, ctypes.byref(ctypes.c_int()))
            raise Refused(
                FAILED_PRECONDITION, f"{call} failed: {text.value.decode(errors='replace')}"
            )

    def expect(self, groups: Sequence[Sequence[int]]) -> None:
        """These meet in the program that is about to run, first in this order."""
        ranks = [rank for group in groups for rank in group]
        self.library.pod_expect(
            (ctypes.c_int * len(ranks))(*ranks),
            (ctypes.c_int * len(groups))(*map(len, groups)),
            (ctypes.c_int * len(groups))(*(self.devices[group[0]] for group in groups)),
            len(groups),
        )

    def lost(self, what: str) -> None:
        """Another rank has gone, and what waits would wait for ever."""

    def wait_for_room(self, size: int, limit_s: float) -> bool:
        """Until no more bytes than that wait in this process to be sent. False: too long."""
        return True

    def gone(self, rank: int) -> None:
        """A rank has left, as it should at its end."""

    def end(self) -> None:
        """All do."""
