"""The pod for torch_xla: `PJRT_DEVICE=POD`, a plugin that it finds when the package is installed.

torch_xla imports this module, and so it imports little and starts nothing. docs/pod.md says what
the pod is.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.metadata
import importlib.util
import os
import secrets
import socket
import sys
import zlib
from datetime import timedelta
from pathlib import Path

from torch_xla.experimental import plugins

_PACKAGE = Path(__file__).with_name("torch_xla_cc")
_DEVICES = "POD_NUM_DEVICES"
_ADDRESS = "TORCH_XLA_CC_POD_ADDRESS"
_TOKEN = "TORCH_XLA_CC_POD_TOKEN"
_TOKEN_BYTES = 16
_TIMEOUT = "TORCH_XLA_CC_TIMEOUT_S"
_COLLECTIVES = "TORCH_XLA_CC_POD_COLLECTIVES"
_PROGRAMS = "TORCH_XLA_CC_POD_PROGRAMS"
# What Open MPI, MPICH (and Intel's) and SLURM say to a rank.
_OF_MPIRUN = {
    "RANK": ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"),
    "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
    "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"),
    "LOCAL_WORLD_SIZE": ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
}
_JAXLIB = "0.7.1"  # pod_device uses what is private; as in _runtime/versions.py
_LEAVE_MS = 100
_LONGEST_S = 86400.0
_LOCALHOST = "127.0.0.1"
_KEY = "torch_xla_cc/pod/{attempt}/address"


class PodPlugin(plugins.DevicePlugin):
    """What torch_xla asks of a kind of device."""

    def __init__(self) -> None:
        super().__init__()
        self._launched: tuple[int, int] | None = None  # rank and world, of torch_xla.launch
        self._store: object = None  # that this process may serve
        self._port: socket.socket | None = None  # held, so that nobody else is given it

    def library_path(self) -> str:
        """The plugin."""
        path = _PACKAGE / "libpod.so"
        if not path.exists():
            raise RuntimeError(f"{path} is missing. In a source tree, build it with `make build`")
        return str(path)

    def client_create_options(self) -> dict[str, str]:
        """What the plugin is to start."""
        rank, world = self._place()
        jaxlib = importlib.util.find_spec("jaxlib")
        version = jaxlib and importlib.metadata.version("jaxlib")
        if jaxlib is None or jaxlib.origin is None or version != _JAXLIB:
            raise RuntimeError(
                f"PJRT_DEVICE=POD needs jaxlib {_JAXLIB}, which runs the programs, but there is "
                f"{version or 'none'}. {_how_to_install()}"
            )
        start = str(_PACKAGE / "_pod" / "start.py")
        command = [sys.executable, "-I", start, str(Path(jaxlib.origin).parents[1])]
        options = {"command": "\n".join(command), "rank": str(rank), "world": str(world)}
        by_mpi = _by_mpi()
        _chosen(_PROGRAMS, "any", "same")  # which the device process reads
        if _TIMEOUT in os.environ:
            options["timeout_s"] = repr(_limit_s())
        if world > 1 and by_mpi:
            options["master"] = _master_of_mpi()
        elif world > 1:
            options["coordinator"], options["token"] = self._coordinator(rank, world)
        atexit.register(self._leave, os.getpid())
        return options

    def _leave(self, pid: int) -> None:
        """An orderly end of the device process, which that of torch_xla does not bring about.

        Rank 0 stays until the others have ended, because its device process serves theirs. If it
        ends by an exception, they would wait for it, and it for them: then it goes.
        """
        if os.getpid() != pid or getattr(sys, "last_value", None) is not None:
            return
        import torch_xla

        with contextlib.suppress(RuntimeError):  # what failed was said, or nobody wanted to know
            torch_xla.core.xla_model.wait_device_ops()
        leave = ctypes.CDLL(self.library_path()).torch_xla_cc_pod_leave
        while not leave(_LEAVE_MS):
            continue  # here, so that ctrl-C is heard

    def configure_single_process(self) -> None:
        """A launch of one process."""
        self._launched = (0, 1)

    def configure_multiprocess(self, local_rank: int, local_world_size: int) -> None:
        """A launch without torchrun, which is all of the world."""
        if "WORLD_SIZE" not in os.environ:
            self._launched = (local_rank, local_world_size)

    def physical_chip_count(self) -> int:
        """How many processes a launch starts; in the process that is about to start them."""
        count = int(os.environ.get(_DEVICES, "1"))
        if count > 1 and _ADDRESS not in os.environ:
            self._port = held_port()
            os.environ[_ADDRESS] = f"{_LOCALHOST}:{self._port.getsockname()[1]}"
            os.environ[_TOKEN] = secrets.token_hex(_TOKEN_BYTES)
        return count

    def _place(self) -> tuple[int, int]:
        """The rank, and how many there are."""
        if self._launched is not None:
            return self._launched
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

    def _coordinator(self, rank: int, world: int) -> tuple[str, str]:
        """Where the device processes meet, and the token that says that they belong there.

        Rank 0 chooses both, and says them in torchrun's store.
        """
        if _ADDRESS in os.environ and _TOKEN in os.environ:
            return os.environ[_ADDRESS], os.environ[_TOKEN]
        if "TORCHELASTIC_USE_AGENT_STORE" not in os.environ:
            raise RuntimeError(
                f"PJRT_DEVICE=POD with WORLD_SIZE={world}, but without torchrun: set {_ADDRESS} to "
                f"an address of rank 0's machine and a free port there, host:port, and {_TOKEN} to "
                "a secret of this job, on all ranks"
            )
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        master = os.environ["MASTER_ADDR"]
        limit = timedelta(seconds=_limit_s())
        served = os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"  # by torchrun
        self._store = store = TCPStore(
            master,
            int(os.environ["MASTER_PORT"]),
            is_master=rank == 0 and not served,
            timeout=limit,
            wait_for_workers=False,
            multi_tenant=True,  # shared with init_process_group, where rank 0 serves
        )
        key = _KEY.format(attempt=os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        if rank == 0:
            alone = os.environ.get("LOCAL_WORLD_SIZE") == str(world)
            self._port = held_port()
            host = _LOCALHOST if alone else master
            host = f"[{host}]" if ":" in host else host
            address = f"{host}:{self._port.getsockname()[1]}"
            store.set(key, f"{address} {secrets.token_hex(_TOKEN_BYTES)}")
        address, _, token = store.get(key).decode().partition(" ")
        return address, token


def _how_to_install() -> str:
    if sys.version_info >= (3, 11):
        return f"Run: {sys.executable} -m pip install 'torch_xla_cc[pod]'"
    return f"It is for Python 3.11 or later, and this is 3.{sys.version_info.minor}"


def _limit_s() -> float:
    """How long to wait."""
    text = os.environ.get(_TIMEOUT, "600")
    with contextlib.suppress(ValueError):
        if (limit := float(text)) > 0:
            return min(limit, _LONGEST_S)
    raise ValueError(f"{_TIMEOUT} = {text!r} must be a number of seconds, more than 0, such as 600")


def _by_mpi() -> bool:
    """Whether device processes meet by MPI: not by gloo, nor in memory that they share."""
    return _chosen(_COLLECTIVES, "gloo", "memory", "mpi") == "mpi"


def _chosen(name: str, *possible: str) -> str | None:
    """What a variable of the environment says, if it says something."""
    value = os.environ.get(name)
    if value is not None and value not in possible:
        *others, last = map(repr, possible)
        raise ValueError(f"{name} = {value!r} must be {', '.join(others)} or {last}")
    return value


def _master_of_mpi() -> str:
    """Where rank 0 is."""
    if "mpi4py.MPI" in sys.modules:
        raise RuntimeError(
            f"{_COLLECTIVES}=mpi: this process uses MPI itself (mpi4py), and its device process "
            "is to be this rank for MPI: one of them can. Use gloo, or no mpi4py"
        )
    if "MASTER_ADDR" not in os.environ:
        raise RuntimeError(
            f"{_COLLECTIVES}=mpi: set MASTER_ADDR to the machine of rank 0 on all ranks, as in "
            "`mpirun -x MASTER_ADDR=host ...`"
        )
    if os.environ.get("PMI_FD") == "3":  # which the device process has its end of a socket at
        moved = os.dup(3)
        os.set_inheritable(moved, True)
        os.environ["PMI_FD"] = str(moved)
    return os.environ["MASTER_ADDR"]


def _port_of_job() -> str:
    """The same on all ranks, and most likely another in other jobs."""
    job = os.environ.get("PMIX_NAMESPACE") or "".join(
        os.environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")
    )
    return str(20000 + zlib.crc32(job.encode()) % 10000 if job else 29500)


def _take_from_mpirun() -> None:
    """What torchrun would have set, of a rank that mpirun or srun has started."""
    if os.environ.get("PJRT_DEVICE") != "POD" or "RANK" in os.environ or not _by_mpi():
        return
    found = {
        name: next((os.environ[other] for other in others if other in os.environ), None)
        for name, others in _OF_MPIRUN.items()
    }
    os.environ.update({name: value for name, value in found.items() if value is not None})
    if found["WORLD_SIZE"] is None:
        return
    if os.environ.get("SLURM_STEP_NUM_NODES") == "1":
        os.environ.setdefault("LOCAL_WORLD_SIZE", found["WORLD_SIZE"])
    if found["WORLD_SIZE"] == os.environ.get("LOCAL_WORLD_SIZE"):
        os.environ.setdefault("MASTER_ADDR", _LOCALHOST)
    os.environ.setdefault("MASTER_PORT", _port_of_job())


def held_port() -> socket.socket:
    """A free port. The device process of rank 0 listens on it as well, which Linux allows."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("", 0))
    return held


def register() -> None:
    """Make torch_xla know it, where the package is not installed (a source tree)."""
    if "POD" not in plugins._plugin_registry:
        plugins.register_plugin("POD", PodPlugin())


_take_from_mpirun()
