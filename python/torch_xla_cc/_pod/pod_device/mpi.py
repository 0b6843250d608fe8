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
_SAID = 1024  # bytes


class Mpi:
    """MPI of this process. It can be begun once."""

    def __init__(self, rank: int, size: int) -> None:
        path = mpi_library.path()
        self.collectives: Any = xla.make_mpi_collectives()
        self._library = ctypes.CDLL(str(path))
        # Not by jaxlib, which would hold Python's lock until all ranks have come.
        provided = ctypes.c_int()
        self._check(
            "MPI_Init_thread",
            self._library.MPIABI_Init_thread(None, None, 0, ctypes.byref(provided)),
        )
        if provided.value < ctypes.c_int.in_dll(self._library, "pod_mpi_serialized").value:
            raise Refused(
                FAILED_PRECONDITION,
                "this MPI is for one thread alone (MPI_THREAD_FUNNELED or less). Use one that is "
                "built for several, or gloo",
            )
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

    def _check(self, call: str, error: int) -> None:
        if error:
            text = ctypes.create_string_buffer(_SAID)
            self._library.MPIABI_Error_string(error, text, ctypes.byref(ctypes.c_int()))
            raise Refused(FAILED_PRECONDITION, f"{call} failed: {text.value.decode()}")

    def _count(self, function: str) -> int:
        world = ctypes.c_size_t.in_dll(self._library, "MPIABI_COMM_WORLD")
        count = ctypes.c_int()
        getattr(self._library, function)(world, ctypes.byref(count))
        return count.value

    def said_by_first(self, text: Callable[[], str], rank: int) -> str:
        """What rank 0 has to say to all."""
        said = ctypes.create_string_buffer(text().encode() if rank == 0 else b"", _SAID)
        self._check("MPI_Ibcast", self._library.pod_mpi_broadcast(said, _SAID))
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
        ends = threading.Thread(target=self._library.MPIABI_Finalize, daemon=True)
        ends.start()
        ends.join(_TO_END_S)
