"""XLA's runtime with several CPU devices in this process, for ranks that are threads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from torch_xla_cc import _C
from torch_xla_cc._runtime.environment import MOST_CPU_DEVICES, number
from torch_xla_cc._runtime.patches import changes
from torch_xla_cc._runtime.private import XLAC

_started: int | None = None  # with how many devices, if the runtime was started here


@contextlib.contextmanager
def started(nprocs: int | None) -> Iterator[int]:
    """Start it, if it does not run, for a launch; the number of devices.

    The environment has what XLA needs for as long as the launch runs, since some of it is read when
    the first graph is made; and processes that are started later are to have devices of their own.
    """
    global _started
    name = "CPU_NUM_DEVICES" if nprocs is None else "nprocs"
    wanted = nprocs or number("CPU_NUM_DEVICES", _started or 1, who="launch")
    require(name, wanted)
    with changes("torch_xla_cc.launch") as made:
        runs = XLAC._xla_runtime_is_initialized()
        if not runs or _started == wanted:
            # What is right stays: a later launch has XLA's threads beside it, and C code that reads
            # the environment while it is written may read freed memory.
            for name, value in _variables(wanted).items():
                if os.environ.get(name) != value:
                    made.item(os.environ, name, value)
        if not runs:
            _started = wanted
        devices = len(XLAC._xla_get_devices())
        if devices != wanted or (wanted > 1 and _started != wanted):
            raise RuntimeError(
                f"launch: {name} = {wanted}, but the XLA runtime of this process already runs with "
                f"{devices} CPU device(s), or was not set up for ranks on threads, and it cannot "
                "be restarted. Call launch before any use of an XLA device, and with one nprocs in "
                "a process"
            )
        if wanted > 1:
            _name_fallbacks()
        yield wanted


def require(name: str, devices: int) -> None:
    """Raise unless there can be so many."""
    if not 1 <= devices <= MOST_CPU_DEVICES:
        raise ValueError(
            f"launch: {name} = {devices}, but it must be 1 to {MOST_CPU_DEVICES}: torch has no "
            "more devices of a kind"
        )


def _variables(devices: int) -> dict[str, str]:
    """What XLA:CPU needs before its runtime starts."""
    cores = os.cpu_count() or 1
    # A collective blocks the thread that runs it. With fewer threads than devices, ranks wait
    # for each other until XLA:CPU ends the process: torch_xla's pool, and XLA's own.
    pools = {
        pool: str(max(devices + cores, number(pool, 0, who="launch")))
        for pool in ("XLA_THREAD_POOL_SIZE", "PJRT_NPROC")
    }
    return {
        "CPU_NUM_DEVICES": str(devices),
        **pools,
        # An asynchronous client hands out results that are not there yet. A thread that then drops
        # an input waits for the program that reads it, with the interpreter lock held, and so for
        # ranks that need that lock to start.
        "PJRT_CPU_ASYNC_CLIENT": "false",
        # A program of XLA:CPU is some hundred mappings of memory. Of 65,530, which Linux gives a
        # process, XLA ends the process, and torch_xla keeps 2,048 programs, of all ranks together.
        "XLA_COMPILATION_CACHE_SIZE": str(number("XLA_COMPILATION_CACHE_SIZE", 512, who="launch")),
        # torch_xla runs a graph of this many nodes by itself, past the read hooks.
        "XLA_TRIM_GRAPH_SIZE": str(2**60),
    }


def _name_fallbacks() -> None:
    """Those of libraries loaded since, too. Counters are afterwards what they were."""
    counted = {name: XLAC._xla_counter_value(name) for name in XLAC._xla_counter_names()}
    if _C.name_fallbacks():
        XLAC._clear_xla_counters()
        for name, number in counted.items():
            XLAC._xla_increment_counter(name, number)
