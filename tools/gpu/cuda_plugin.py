"""The CUDA plugin of JAX as torch_xla's device "CUDA": torch_xla 2.9.0 brings none of its own.

A distribution with the entry point torch_xla.plugins registers it (pack.py).
"""

from __future__ import annotations

import os
from typing import Any

from torch_xla.experimental import plugins


class CudaPlugin(plugins.DevicePlugin):  # type: ignore[misc]
    """One process a rank. Several of them may share a GPU, each with a part of its memory."""

    def library_path(self) -> str:
        """The file of the plugin."""
        return os.environ["XLA_RENAMED_PLUGIN"]

    def physical_chip_count(self) -> int:
        """How many ranks this machine has."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    def configure_single_process(self) -> None:
        """Nothing to set."""

    def client_create_options(self) -> dict[str, Any]:
        """As jax gives them to the plugin."""
        ranks = int(os.environ.get("WORLD_SIZE", "1"))
        options: dict[str, Any] = {
            "platform_name": "cuda",
            "node_id": int(os.environ.get("RANK", "0")),
            "num_nodes": ranks,
        }
        if mocked := os.environ.get("MOCKED_RANKS"):
            options |= {"enable_mock_nccl": True, "num_nodes": int(mocked)}
        if device := os.environ.get("VISIBLE_GPU"):
            options |= {"visible_devices": [int(device)]}
        if share := os.environ.get("GPU_MEMORY_SHARE"):
            options |= {"preallocate": False, "memory_fraction": float(share)}
        return options

    def requires_xla_coordinator(self) -> bool:
        """Whether ranks tell each other of their devices."""
        return int(os.environ.get("WORLD_SIZE", "1")) > 1
