"""What comparing calls costs at the store of a group, by the number of its ranks.

Each simulated rank is a thread with a store and a backend of its own, which calls barrier: that is
the comparison alone, as ranks that are processes do it. gloo, which would connect the ranks two by
two, is left out: a backend that moves nothing stands in its place. The store is a process of its
own, of which bytes and seconds are measured; requests are counted in a second run, in which each
goes through Python. All ranks are on one machine here, and so look after 64 processes each. A
thousand ranks take 1 GB of memory here.

    python benchmarks/store_scale.py [ranks ...]
"""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

RANKS = (4, 64, 256, 1024)
LATER = 10  # calls after the first
Rows = list[tuple[str, ...]]
_LIMIT = timedelta(seconds=600)
_BYTES_SENT = 120  # and, behind it, received: in Linux's struct tcp_info
_KINDS = {  # requests that a method of TCPStore's client sends
    "set": 1,
    "get": 2,
    "add": 1,
    "check": 1,
    "wait": 1,
    "delete_key": 1,
    "multi_set": 1,
    "multi_get": 2,
}


def _traffic() -> tuple[int, int]:
    """Bytes that this process has received and sent on its connections."""
    received = sent = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.type != socket.SOCK_STREAM:
                    continue
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:
            continue  # no socket, or not of TCP
        s, r = struct.unpack_from("QQ", info, _BYTES_SENT)
        received, sent = received + r, sent + s
    return received, sent


def _serve() -> None:
    """The store: answers each line of its input with bytes received, sent and its seconds."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
    print(store.port, flush=True)
    for _ in sys.stdin:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps([*_traffic(), usage.ru_utime + usage.ru_stime]), flush=True)


class _Server:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "import store_scale as b; b._serve()"],
            cwd=Path(__file__).parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def look(self) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return list(json.loads(self._line()))

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _counting(store: Any, counts: dict[str, int]) -> Any:
    """The store, of which requests are counted."""
    from torch._C import _distributed_c10d as c10d

    def counted(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any) -> Any:
            counts[name] = counts.get(name, 0) + _KINDS[name]  # under the interpreter lock
            return getattr(self.inner, name)(*args)

        return method

    class Counting(c10d.Store):  # type: ignore[misc]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def clone(self) -> Any:
            copy = Counting(self.inner.clone())
            kept.append(copy)  # C++ does not keep the Python part alive
            return copy

        def set_timeout(self, limit: timedelta) -> None:
            self.inner.set_timeout(limit)

        def has_extended_api(self) -> bool:
            return True

    kept: list[Any] = []
    for name in _KINDS:
        setattr(Counting, name, counted(name))
    made = Counting(store)
    kept.append(made)
    counts.setdefault("kept", 0)
    _KEPT.extend((kept, made))
    return made


_KEPT: list[Any] = []


class _Ranks:
    """Backends of all ranks, each on a thread that does what it is told."""

    def __init__(self, size: int, port: int, counts: dict[str, int] | None) -> None:
        import torch.distributed as dist
        from torch._C._distributed_c10d import FakeProcessGroup

        from torch_xla_cc import _C

        members = list(range(size))
        self._go = threading.Barrier(size + 1)
        self._ends = [0.0] * size
        self._calls = 0

        few = threading.BoundedSemaphore(16)

        def work(rank: int) -> None:
            with few:  # a store loses connections of which too many come at once
                store: Any = dist.TCPStore("localhost", port, None, is_master=False, timeout=_LIMIT)
                if counts is not None:
                    store = _counting(store, counts)
                backend: Any = _C.process_backend(
                    FakeProcessGroup(rank, size),
                    dist.PrefixStore("simulated", store),
                    1,  # fingerprint
                    *(False, False, False, False),  # through the host alone
                    _C.RankGroup("simulated", members, members, size, rank),
                    int(_LIMIT.total_seconds() * 1000),
                )
            self._go.wait()
            while True:
                self._go.wait()
                if self._calls == 0:
                    return
                for _ in range(self._calls):
                    backend.barrier().wait()
                self._ends[rank] = time.perf_counter()
                self._go.wait()

        self._threads = [threading.Thread(target=work, args=(rank,)) for rank in members]
        for thread in self._threads:
            thread.start()
        self._go.wait()  # all are connected

    def call(self, times: int) -> float:
        """Seconds until all ranks have made so many calls; at 0, they end."""
        self._calls = times
        self._go.wait()
        begin = time.perf_counter()
        if times == 0:
            for thread in self._threads:
                thread.join()
            return 0.0
        self._go.wait()
        return max(self._ends) - begin


def measure(size: int, count: bool) -> list[list[float]]:
    """For the first call and for a later one: seconds, bytes in and out, seconds of the store."""
    threading.stack_size(1 << 20)
    counts: dict[str, int] | None = {} if count else None
    found = []
    with _Server() as server:
        ranks = _Ranks(size, server.port, counts)
        for times in (1, LATER):
            time.sleep(0.2)  # what is on its way arrives
            before = [*server.look(), float(sum((counts or {}).values()))]
            seconds = ranks.call(times)
            time.sleep(0.2)
            after = [*server.look(), float(sum((counts or {}).values()))]
            found.append(
                [seconds / times, *((b - a) / times for a, b in zip(before, after, strict=True))]
            )
        ranks.call(0)
    return found


def run(sizes: tuple[int, ...] = RANKS) -> Rows:
    """Rows: ranks, call, requests, KiB in and out of the store, its ms, ms of the call."""
    rows = []
    for size in sizes:
        timed, counted = (_apart(size, count) for count in (False, True))
        for name, times, counts in zip(("first", "later"), timed, counted, strict=True):
            seconds, received, sent, busy, _ = times
            rows.append(
                (
                    str(size),
                    name,
                    f"{counts[-1]:.0f}",
                    f"{received / 1024:.1f}",
                    f"{sent / 1024:.1f}",
                    f"{busy * 1e3:.1f}",
                    f"{seconds * 1e3:.1f}",
                )
            )
    return rows


def _apart(size: int, count: bool) -> list[list[float]]:
    """In a process of its own, which ends with its threads."""
    code = f"import json, os, store_scale as b; rows = b.measure({size}, {count})"
    code += "; print('ROWS' + json.dumps(rows), flush=True); os._exit(0)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        env=dict(os.environ, PJRT_DEVICE="CPU"),
        text=True,
        stdout=subprocess.PIPE,
        timeout=1800,
        check=True,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("ROWS"))
    return list(json.loads(line[len("ROWS") :]))


if __name__ == "__main__":
    for number in [int(word) for word in sys.argv[1:]] or RANKS:
        for row in run((number,)):
            print(*row, sep="\t", flush=True)
