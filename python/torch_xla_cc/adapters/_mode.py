"""What the adapters' modes of torch.overrides share."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torch_xla_cc import _C

Function = Callable[..., Any]
# (function, arguments, keywords): makes the call.
Handler = Callable[[Function, Sequence[Any], dict[str, Any]], Any]


class Mode(TorchFunctionMode):
    """Sees calls of some functions of torch, and makes them.

    It is looked up in C++: a mode gets all calls, and each x.shape too.
    """

    def __init__(
        self,
        handlers: Mapping[Function, Handler],
        keyword: str = "",
        other: Handler | None = None,
    ) -> None:
        """`other` makes calls that have the keyword, if one is given."""
        super().__init__()
        # A mode is off while it handles a call. Programs have functions of their own in a backward
        # pass, so there it is on.
        backward = {torch.Tensor.backward: self._backward}
        function = _C.torch_function({**handlers, **backward}, keyword, other)
        vars(self)["__torch_function__"] = types.MethodType(function, self)

    def _backward(
        self, function: Function, args: Sequence[Any], keywords: Mapping[str, Any]
    ) -> None:
        with self:
            _backward(*args, **keywords)


def _backward(
    x: torch.Tensor,
    gradient: torch.Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,  # noqa: ANN401 (tensors, or None)
) -> None:
    torch.autograd.backward(x, gradient, retain_graph, create_graph, inputs=inputs)
