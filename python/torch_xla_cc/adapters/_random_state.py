"""The random numbers of a device, as those of a CUDA device are.

The device's state is a number of 64 bits without a sign, and here a tensor of its bytes. A tensor
of one number holds the lower half of them only.
"""

from __future__ import annotations

import secrets

import torch
from torch_xla.core import xla_model

from torch_xla_cc._runtime import forked
from torch_xla_cc._runtime.private import XLAC

_MOST = 2**64 - 1
_LEAST = -(2**63)


def get() -> torch.Tensor:
    """The seed of what is drawn next."""
    return torch.tensor(
        list(int(xla_model.get_rng_state()).to_bytes(8, "little")), dtype=torch.uint8
    )


def put(state: torch.Tensor) -> None:
    """Set the seed of what is drawn next."""
    xla_model.set_rng_state(int.from_bytes(state.tolist(), "little"))


class Generator:
    """Those of an XLA device, as an entry of torch.cuda.default_generators.

    Programs seed it before they make a world, and the runtime on TPU has to know of the others when
    it starts: so it keeps a seed until it has.
    """

    def __init__(self) -> None:
        self._kept: int | None = None
        self._seed = 0

    def manual_seed(self, seed: int) -> Generator:
        """As torch.manual_seed() has all devices do, with what it takes."""
        seed = int(seed)
        if not _LEAST <= seed <= _MOST:
            raise RuntimeError(f"manual_seed: seed = {seed}, but it must be in [-2**63, 2**64 - 1]")
        self._seed = seed if seed >= 0 else _MOST + 1 + seed
        if not forked.with_runtime():  # a worker of a DataLoader: it has no device
            self._kept = self._seed
            if XLAC._xla_runtime_is_initialized():
                self.begin()
        return self

    def begin(self) -> None:
        """The device is about to be used."""
        if self._kept is not None:
            xla_model.set_rng_state(self._kept)
            self._kept = None

    def seed(self) -> int:
        """Make it one that nobody knows."""
        self.manual_seed(secrets.randbits(64))
        return self._seed

    def initial_seed(self) -> int:
        """What it was seeded by."""
        return self._seed

    def get_state(self) -> torch.Tensor:
        self.begin()
        return get()

    def set_state(self, state: torch.Tensor) -> None:
        self._kept = None
        put(state)
