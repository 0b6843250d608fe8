"""Types of arguments."""

from __future__ import annotations

from collections.abc import Sequence

import torch

Tensors = torch.Tensor | list[torch.Tensor]
Groups = Sequence[Sequence[int]] | None  # lists of ranks; None for all together
