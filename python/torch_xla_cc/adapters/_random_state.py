"""The device's random state as a tensor of bytes, as those of CUDA devices are.

It is a number of 64 bits without a sign. A tensor of one number holds the lower half of them only.
"""

from __future__ import annotations

import torch
from torch_xla.core import xla_model


def get() -> torch.Tensor:
    """The seed of what is drawn next."""
    return torch.tensor(
        list(int(xla_model.get_rng_state()).to_bytes(8, "little")), dtype=torch.uint8
    )


def put(state: torch.Tensor) -> None:
    """Set the seed of what is drawn next."""
    xla_model.set_rng_state(int.from_bytes(state.tolist(), "little"))
