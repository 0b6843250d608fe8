"""MPI in the place of gloo: jaxlib's collectives by the MPI that the job was started with."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

from . import mpi_library
from .errors import FAILED_PRECONDITION, INVALID_ARGUMENT, Refused
from .jaxlib_xla import xla

_TO_END_S = 10.0  # of ranks that have said that they leave
_SAID = 512  # bytes


class Mpi:
    """MPI of this process. It can be begun once."""

    def __init__(self, rank: int, size: int) -> None:
        path = mpi_library.path()
        self.collectives: Any = xla.make_mpi_collectives()
        self._library = ctypes.CDLL(str(path))
        self.collectives.Init()
        self.devices: dict[int, int] = {}  # of ranks, as jaxlib numbers them
        counted = [self._count(name) for name in ("MPIABI_Comm_rank", "MPIABI_Comm_size")]
        if counted != [rank, size]:
            raise Refused(
                INVALID_ARGUMENT,
                f"MPI counts this process as rank {counted[0]} of {counted[1]}, and its "
                f"environment says rank {rank} of {size}. With {mpi_library.CHOICE}=mpi start "
                "the ranks without torchrun, by the mpirun that belongs to "
                f"{mpi_library.compiler()}; {mpi_library.COMPILER} names another compiler",
            )

    def _count(self, function: str) -> int:
        world = ctypes.c_size_t.in_dll(self._library, "MPIABI_COMM_WORLD")
        count = ctypes.c_int()
        getattr(self._library, function)(world, ctypes.byref(count))
        return count.value

    def said_by_first(self, text: Callable[[], str], rank: int) -> str:
        """What rank 0 has to say to all."""
        said = ctypes.create_string_buffer(text().encode() if rank == 0 else b"", _SAID)
        if error := self._library.pod_mpi_broadcast(said, _SAID):
            raise Refused(FAILED_PRECONDITION, f"MPI_Ibcast of {_SAID} bytes failed: {error}")
        return said.value.decode()

    def expect(self, groups: Sequence[Sequence[int]]) -> None:
        """These meet in the program that is about to run, first in this order."""
        ranks = [rank for group in groups for rank in group]
        self._library.pod_mpi_expect(
            (ctypes.c_int * len(ranks))(*ranks),
            (ctypes.c_int * len(groups))(*map(len, groups)),
            (ctypes.c_int * len(groups))(*(self.devices[group[0]] for group in groups)),
            len(groups),
        )

    def end(self) -> None:
        """All do. Not for long, where one has gone otherwise."""
        ends = threading.Thread(target=self.collectives.Finalize, daemon=True)
        ends.start()
        ends.join(_TO_END_S)
