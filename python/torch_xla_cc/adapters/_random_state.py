"""The random numbers of a device, as those of a CUDA device are.

The device's state is a number of 64 bits without a sign, and here a tensor of its bytes. A tensor
of one number holds the lower half of them only.
"""

from __future__ import annotations

import secrets

import torch

from torch_xla_cc._runtime import forked, seeds

_BYTES = 8
_COUNT = 2 ** (8 * _BYTES)


def get() -> torch.Tensor:
    """The seed of what is drawn next."""
    return torch.tensor(list(seeds.get().to_bytes(_BYTES, "little")), dtype=torch.uint8)


def put(state: torch.Tensor) -> None:
    """Set the seed of what is drawn next."""
    if state.dtype != torch.uint8 or state.numel() != _BYTES:
        raise RuntimeError(
            f"set_rng_state: the state has {state.numel()} numbers of {state.dtype}, but must have "
            f"{_BYTES} of torch.uint8, as an XLA device has. Give what get_rng_state() gave: "
            "the state of another kind of device means nothing here"
        )
    seeds.put(int.from_bytes(state.tolist(), "little"))


class Generator:
    """Those of an XLA device, as an entry of torch.cuda.default_generators."""

    def __init__(self) -> None:
        self._seed: int | None = None

    def manual_seed(self, seed: int) -> Generator:
        """As torch.manual_seed() has all devices do, with what it takes."""
        seed = int(seed)
        if not -_COUNT // 2 <= seed < _COUNT:
            raise RuntimeError(
                f"manual_seed: seed = {seed}, but it must be from -2**63 to 2**64 - 1"
            )
        if not forked.with_runtime():  # a worker of a DataLoader has no device
            self._seed = seed % _COUNT
            seeds.put(self._seed)
        return self

    def seed(self) -> int:
        """Make it one that nobody knows."""
        self.manual_seed(secrets.randbelow(_COUNT))
        return self.initial_seed()

    def initial_seed(self) -> int:
        """What it was seeded by, or else is at."""
        return seeds.get() if self._seed is None else self._seed

    def get_state(self) -> torch.Tensor:
        return get()

    def set_state(self, state: torch.Tensor) -> None:
        put(state)
