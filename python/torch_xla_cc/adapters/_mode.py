"""What the adapters' modes of torch.overrides share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Mode(TorchFunctionMode):
    """Sees each call of a function of torch, before it is made."""

    def call(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> Any:  # noqa: ANN401 (whatever the function returns)
        """Make the call.

        A mode is off while it handles a call. Programs have functions of their own in a backward
        pass, so there it is on.
        """
        if func is torch.Tensor.backward:
            with self:
                return _backward(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _backward(
    x: torch.Tensor,
    gradient: torch.Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,  # noqa: ANN401 (tensors, or None)
) -> None:
    torch.autograd.backward(x, gradient, retain_graph, create_graph, inputs=inputs)
