"""Of ZeRO 1 and 2: a parameter, its gradient and its states, in float32, in the parts of ranks.

`safe_get_full_grad()` and its like have each rank give its fragment of a parameter. DeepSpeed keeps
the fragments as views, other ones on each rank: tensors that live, and so in the next program. Here
they are made when somebody asks, from all of a part, and by a table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from deepspeed import comm  # type: ignore[import-untyped]
from deepspeed.runtime.zero import stage_1_and_2  # type: ignore[import-untyped]
from deepspeed.utils import tensor_fragment  # type: ignore[import-untyped]

from torch_xla_cc._runtime.patches import Changes
from torch_xla_cc.distributed import own_part

_Optimizer = Any  # a DeepSpeedZeroOptimizer


class _Views(dict[str, Any]):
    """By name: views that are made when they are asked for, or tensors."""

    def __getitem__(self, key: str) -> torch.Tensor:
        made = super().__getitem__(key)
        view: torch.Tensor = made() if callable(made) else made
        return view


class _Fragment(tensor_fragment):  # type: ignore[misc]
    """DeepSpeed's, for checkpoints, without views that live."""

    @classmethod
    def of(cls, theirs: Any, param: torch.Tensor, flat: torch.Tensor) -> _Fragment:  # noqa: ANN401
        """The same fragment."""
        made = cls.__new__(cls)
        made.__dict__.update(vars(theirs))
        del made.hp_fragment, made.lp_fragment
        made._param, made._flat = param, flat
        if theirs.optim_fragment is not None:
            made.optim_fragment = _Views(theirs.optim_fragment)
        return made

    def _place(self) -> tuple[int, int]:
        address: Any = self.hp_fragment_address
        return address.start, address.numel

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (a view)
        """What is not there: the views."""
        if name == "hp_fragment":
            return self._flat.narrow(0, *self._place())
        if name == "lp_fragment":
            address = self.lp_fragment_address
            return self._param.flatten().narrow(0, address.start, address.numel)
        raise AttributeError(name)

    def set_optim_state_fragment(
        self, flat_hp_partition: torch.Tensor, optim_fragment: dict[str, Any]
    ) -> None:
        """The states of a part, of which these are fragments."""
        self.optim_fragment = _Views(
            {
                key: functools.partial(value.narrow, 0, *self._place())
                for key, value in optim_fragment.items()
                if torch.is_tensor(value) and value.shape == flat_hp_partition.shape
            }
        )


class _Whole:
    """Of a parameter: what it is in the parts of all ranks. Methods of the parameter."""

    def __init__(self, optimizer: _Optimizer, group: int, offset: int) -> None:
        self._optimizer = optimizer
        self._group = group
        self._offset = offset
        self._ranks = optimizer.real_dp_process_group[group]

    def _part(self, state: str | None) -> torch.Tensor:
        """This rank's part of all, or of one of the states of all."""
        part: torch.Tensor = self._optimizer.single_partition_of_fp32_groups[self._group]
        if state is None:
            return part
        value = self._optimizer.optimizer.state[part].get(state)
        if not torch.is_tensor(value) or value.shape != part.shape:
            raise ValueError(f"{state} not found in optimizer state fragment")
        return value

    def _gradients(self) -> torch.Tensor:
        group = self._optimizer.averaged_gradients.get(self._group)
        if group is None:
            raise ValueError(
                "Gradients are only available immediately after backward and before engine step"
            )
        part: torch.Tensor = group.flat_partition
        return part

    def _window(self, x: torch.Tensor, size: int, start: Callable[[int], int]) -> torch.Tensor:
        own = own_part.window(x, size, start, self._ranks)
        return x.narrow(0, start(self._ranks.rank()), size) if own is None else own

    def _gathered(self, part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """The parameter's elements in all parts, as a tensor of its shape."""
        count, size = like.numel(), part.numel()
        padded = torch.nn.functional.pad(part.detach().float(), (count, count))

        def start(place: int) -> int:
            return min(max(self._offset - place * size + count, 0), size + count)

        own = self._window(padded, count, start)
        comm.all_reduce(own, group=self._ranks)
        return own.view(like.shape)

    @torch.no_grad()
    def _write(self, part: torch.Tensor, value: torch.Tensor) -> None:
        """What of the value is in this rank's part."""
        count, size = value.numel(), part.numel()
        value = value.detach().reshape(-1).to(part.device, part.dtype)

        def start(place: int) -> int:
            return min(max(place * size - self._offset + size, 0), size + count)

        def own(x: torch.Tensor) -> torch.Tensor:
            padded = torch.nn.functional.pad(x, (size, size))
            return self._window(padded, size, start)

        part.data.copy_(torch.where(own(torch.ones_like(value)) > 0, own(value), part))

    def get_full_hp_param(self, param: torch.Tensor, optim_state_key: str | None = None) -> Any:  # noqa: ANN401
        return self._gathered(self._part(optim_state_key), param)

    def get_full_hp_grad(self, param: torch.Tensor) -> Any:  # noqa: ANN401
        return self._gathered(self._gradients(), param)

    def set_full_hp_param(
        self,
        param: torch.Tensor,
        value: torch.Tensor,
        optim_state_key: str | None = None,
    ) -> None:
        del param
        self._write(self._part(optim_state_key), value)

    def set_full_hp_grad(self, param: torch.Tensor, value: torch.Tensor) -> None:
        del param
        self._write(self._gradients(), value)

    def bind(self, param: torch.Tensor) -> None:
        """Have them be the parameter's."""
        for name in ("full_hp_param", "full_hp_grad"):
            for what in (f"get_{name}", f"set_{name}"):
                setattr(param, what, functools.partial(getattr(self, what), param))


def _link(
    is_ours: Callable[[_Optimizer], bool], theirs: Callable[..., None], optimizer: _Optimizer
) -> None:
    """_link_all_hp_params."""
    theirs(optimizer)
    if not is_ours(optimizer):
        return
    for i, flat in enumerate(optimizer.single_partition_of_fp32_groups):
        offsets = optimizer.round_robin_bit16_offsets[i]
        for param, offset in zip(optimizer.round_robin_bit16_groups[i], offsets, strict=True):
            if param._hp_mapping is not None:
                param._hp_mapping = _Fragment.of(param._hp_mapping, param, flat)
            _Whole(optimizer, i, offset).bind(param)


def install(changes: Changes, is_ours: Callable[[_Optimizer], bool]) -> None:
    """In ZeRO 1 and 2, of the optimizers that `is_ours` says."""
    zero = stage_1_and_2.DeepSpeedZeroOptimizer
    changes.wrap(zero, "_link_all_hp_params", functools.partial(_link, is_ours))
