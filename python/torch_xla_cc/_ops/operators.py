"""Collectives as operators: what torch.compile traces instead of the extension's functions."""

from __future__ import annotations

from typing import Any

import torch

from torch_xla_cc._ops.types import Operands

compiling = torch.compiler.is_dynamo_compiling


def operator(name: str, operands: Operands, *fields: Any) -> Any:  # noqa: ANN401 (fields vary)
    """torch.ops.xla_cc.<name> of a tensor, or of a list of them."""
    op = getattr(torch.ops.xla_cc, name)
    if isinstance(operands, torch.Tensor):
        return op([operands], *fields)[0]
    return op(list(operands), *fields)
