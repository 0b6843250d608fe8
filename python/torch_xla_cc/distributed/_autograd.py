"""all_to_all_single with a gradient.

torch's own kernel calls `_c10d_functional::all_to_all_single` by a C++ signature, and torch_xla has
registered another one for that operator: since `import torch_xla` the call is an error, for tensors
of all devices. This is the same for XLA, called by the schema.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_xla_cc._runtime.private import functional_ops

_library = torch.library.Library(
    "_c10d_functional_autograd", "IMPL"
)  # kept: it ends with its kernels


class _AllToAllSingle(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 (torch has no name for it)
        x: torch.Tensor,
        output_splits: list[int],
        input_splits: list[int],
        group_name: str,
    ) -> torch.Tensor:
        ctx.back = input_splits, output_splits, group_name
        return _exchange(x, output_splits, input_splits, group_name)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # noqa: ANN401
        return _exchange(gradient.contiguous(), *ctx.back), None, None, None


def _exchange(x: torch.Tensor, out: list[int], into: list[int], group_name: str) -> torch.Tensor:
    found: torch.Tensor = functional_ops.wait_tensor(
        functional_ops.all_to_all_single(x, out, into, group_name)
    )
    return found


def register() -> None:
    """Once a process."""
    _library.impl("all_to_all_single", _AllToAllSingle.apply, "AutogradXLA")
