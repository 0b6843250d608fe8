"""`x[mask] = number` without reading the mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_xla_cc.adapters._mode import Mode


class FilledMasks(Mode):
    """Writes a number where a mask of XLA tensors says, as masked_fill_ does.

    PyTorch counts the True entries of a mask first. A lazy device has to run all that is pending
    for that, and programs differ with the count.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the function returns)
        if func is torch.Tensor.__setitem__:
            x, index, value = args
            mask = _mask(index)
            if mask is not None and isinstance(value, (int, float)) and x.device.type == "xla":
                x.masked_fill_(mask.reshape(mask.shape + (1,) * (x.dim() - mask.dim())), value)
                return None
        return self.call(func, args, kwargs)


def _mask(index: Any) -> torch.Tensor | None:  # noqa: ANN401 (whatever stands in brackets)
    """The mask, if it is all that the index says: `[mask]`, `[mask, :]`, `[mask, ...]`."""
    first, *others = index if isinstance(index, tuple) and index else (index,)
    is_mask = isinstance(first, torch.Tensor) and first.dtype == torch.bool and first.dim() > 0
    whole = all(
        one is Ellipsis or (isinstance(one, slice) and one == slice(None)) for one in others
    )
    return first if is_mask and whole else None
