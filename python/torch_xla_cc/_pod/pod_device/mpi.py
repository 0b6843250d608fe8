"""MPI in the place of gloo: jaxlib's collectives by the MPI that the job was started with."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from . import mpi_library
from .errors import FAILED_PRECONDITION, INVALID_ARGUMENT, Refused
from .mpi_names import Names

_TO_END_S = 10.0  # of ranks that have said that they leave
_SAID = 1024  # bytes


class Mpi(Names):
    """MPI of this process."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(mpi_library.path())
        # Not by jaxlib, which would hold Python's lock until all ranks have come.
        provided = ctypes.c_int()
        self.check(
            "MPI_Init_thread",
            self.library.MPIABI_Init_thread(None, None, 0, ctypes.byref(provided)),
        )
        if provided.value < ctypes.c_int.in_dll(self.library, "pod_mpi_serialized").value:
            raise Refused(
                FAILED_PRECONDITION,
                "this MPI is for one thread alone (MPI_THREAD_FUNNELED or less). Use one that is "
                "built for several, or gloo",
            )
        self.collectives.Init()
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
        world = ctypes.c_size_t.in_dll(self.library, "MPIABI_COMM_WORLD")
        count = ctypes.c_int()
        getattr(self.library, function)(world, ctypes.byref(count))
        return count.value

    def said_by_first(self, text: Callable[[], str], rank: int) -> str:
        """What rank 0 has to say to all."""
        said = ctypes.create_string_buffer(text().encode() if rank == 0 else b"", _SAID)
        self.check("MPI_Ibcast", self.library.pod_mpi_broadcast(said, _SAID))
        return said.value.decode()

    def end(self) -> None:
        """Not for long, where one has gone otherwise."""
        ends = threading.Thread(target=self.library.MPIABI_Finalize, daemon=True)
        ends.start()
        ends.join(_TO_END_S)
