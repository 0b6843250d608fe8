"""XLA tensors as the memory of the host, and back; called by the extension.

The functions of torch_xla are looked up when they are called: read hooks may stand before them.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_xla_cc._runtime.private import XLAC


def needs_run(tensor: torch.Tensor) -> bool:
    """Whether it is the result of something that has not run."""
    return bool(XLAC._check_tensor_need_materialization([tensor])[0])


def run_live(index: int) -> None:
    """Run all that the tensors of a device wait for.

    Not a step: that changes the seed of random numbers, and other ranks may have nothing pending.
    """
    XLAC._xla_sync_live_tensors(f"xla:{index}", [], wait=False)


def to_dlpack(tensor: torch.Tensor) -> Any:  # noqa: ANN401 (a capsule)
    """The memory of a tensor, once it has been computed."""
    XLAC._xla_sync_multi([tensor], [], wait=True, sync_xla_data=True)
    return XLAC._to_dlpack(tensor)


def from_dlpack(capsule: Any) -> torch.Tensor:  # noqa: ANN401 (as above)
    """A tensor of the memory that is in a capsule."""
    tensor: torch.Tensor = XLAC._from_dlpack(capsule)
    return tensor
