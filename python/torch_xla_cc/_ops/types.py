"""Types of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import torch

# Of a tensor comes a tensor, of a list a list.
Tensors = TypeVar("Tensors", torch.Tensor, list[torch.Tensor])
Operands = torch.Tensor | list[torch.Tensor]  # where it does not matter which

Groups = Sequence[Sequence[int]] | None  # lists of ranks; None for all together

ReduceType = Literal[
    "sum", "mul", "product", "min", "max", "and", "or", "xor", "average", "premultiplied_sum"
]
Policy = Literal["allow", "warn", "error"]  # of fallbacks
