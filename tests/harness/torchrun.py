"""Ranks as torchrun starts them, without its start: each is forked by the server of forks.py.

They have the variables that torchrun sets, and the store that it serves, which is served here.
Tests of what is torchrun's own start it: test_from_nccl.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import forks
import torch.distributed as dist

ON_POD = "TORCH_XLA_CC_TESTS_ON_POD"  # of pytest --on-pod


class Ranks:
    """`target(*args[rank])` in a process for each rank."""

    def __init__(
        self,
        size: int,
        target: Callable[..., Any],
        args: Sequence[tuple[Any, ...]],
        env: Mapping[str, str],
        output: IO[Any],
    ) -> None:
        self._store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        self.processes: list[Any] = []
        try:
            for rank in range(size):
                of_rank = {**os.environ, **_variables(rank, size, self._store.port), **env}
                self.processes.append(forks.start(target, *args[rank], env=of_rank, output=output))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End those that still run."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
        del self._store


def _variables(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "ROLE_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "ROLE_WORLD_SIZE": str(size),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": f"tests {port}",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": "1",
        "PJRT_DEVICE": "POD" if os.environ.get(ON_POD) else "CPU",
    }
