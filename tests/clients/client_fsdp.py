"""FSDP1 and FSDP2, as clients of random_clients.py."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis.strategies as st
import torch
from client_kinds import EVERYWHERE, Client, replaced
from random_models import Model, Network
from torch import nn


def units(network: Network, each: bool) -> list[nn.Module]:
    """What is wrapped on its own: layers that have parameters."""
    return [x for x in network.layers if each and any(True for _ in x.parameters())]


def in_one_type(model: Model, each: bool) -> Model:
    """Layers that are wrapped one by one may be of several types, others of one."""
    if each:
        return model
    layers = (replaced(layer, dtype="f32") for layer in model.layers)
    return replaced(model, layers=tuple(layers))


class Fsdp1(Client):
    """FullyShardedDataParallel."""

    layers = (*EVERYWHERE, "buffered", "empty", "unused", "aside")
    STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")

    @staticmethod
    def options(size: int) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries(
            {
                "strategy": st.sampled_from(Fsdp1.STRATEGIES[: 5 if size == 4 else 3]),
                "orig": st.booleans(),
                "each": st.booleans(),
                "precision": st.sampled_from(["", "", "bf16", "reduce"]),
                "forward": st.booleans(),
                "backward": st.sampled_from(["BACKWARD_PRE", "BACKWARD_POST", ""]),
                "sync": st.booleans(),
                "kind": st.sampled_from(["FULL", "SHARDED"]),
            }
        )

    @staticmethod
    def fit(model: Model, options: dict[str, Any]) -> Model:
        model = in_one_type(model, options["each"])
        if options["orig"]:
            return model
        # The same of all parameters that are wrapped together: frozen or not.
        frozen = ("", "all") if options["each"] else ("",)
        layers = [x if x.frozen in frozen else replaced(x, frozen=frozen[-1]) for x in model.layers]
        return replaced(model, layers=tuple(layers))

    @classmethod
    def install(cls, stack: contextlib.ExitStack, recipe: Any) -> None:
        from torch_xla_cc.adapters import fsdp1

        stack.enter_context(fsdp1.installed())

    def wrap(
        self,
        network: Network,
        strategy: str,
        orig: bool,
        each: bool,
        precision: str,
        forward: bool,
        backward: str,
        sync: bool,
        kind: str,
    ) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import (
            BackwardPrefetch,
            FullyShardedDataParallel,
            MixedPrecision,
            ShardingStrategy,
        )

        options: dict[str, Any] = {
            "sharding_strategy": ShardingStrategy[strategy],
            "use_orig_params": orig,
            "forward_prefetch": forward,
            "backward_prefetch": BackwardPrefetch[backward] if backward else None,
            # Of the CPU torch does not take it, where all have the same anyway.
            "sync_module_states": sync and self.device.type == "xla",
            "device_id": self.device,
        }
        if "HYBRID" in strategy:
            options["device_mesh"] = init_device_mesh(
                self.device.type, (2, 2), mesh_dim_names=("dp", "shard")
            )
        if precision:
            options["mixed_precision"] = MixedPrecision(
                param_dtype=torch.bfloat16 if precision == "bf16" else None,
                reduce_dtype=torch.float32 if precision == "bf16" else torch.bfloat16,
                cast_forward_inputs=True,
            )
        wrapped = units(network, each)
        for i, layer in enumerate(network.layers):
            if any(layer is x for x in wrapped):
                network.layers[i] = FullyShardedDataParallel(layer, **options)
        return FullyShardedDataParallel(network, **options)

    def part(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if last else self.model.no_sync()

    def clip(self, norm: float) -> Any:
        return self.model.clip_grad_norm_(norm)

    def _kind(self, model: nn.Module, kind: str = "") -> contextlib.AbstractContextManager[Any]:
        from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

        kind = kind or self.recipe.options["kind"]
        of_torch = StateDictType[f"{kind}_STATE_DICT"]
        return FullyShardedDataParallel.state_dict_type(model, of_torch)

    def state(self) -> dict[str, Any]:
        with self._kind(self.model):
            return self.model.state_dict()

    def resumed(self) -> Client:
        from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp

        other = type(self)(self.recipe, self.device, seed=1)
        with self._kind(self.model):
            state = self.model.state_dict()
        # Whole ones of the CPU torch gathers in one buffer, which its `.cpu()` then does not copy:
        # exp_avg becomes exp_avg_sq.
        split = self.device.type == "cpu" and self.recipe.options["orig"]
        with self._kind(self.model, "SHARDED" if split else ""):
            of_optimizer = Fsdp.optim_state_dict(self.model, self.optimizer)
        with self._kind(other.model):
            other.model.load_state_dict(state)
        with self._kind(other.model, "SHARDED" if split else ""):
            loaded = Fsdp.optim_state_dict_to_load(other.model, other.optimizer, of_optimizer)
        other.optimizer.load_state_dict(loaded)
        return other


class Fsdp2(Client):
    """fully_shard. Parameters without elements are refused by a kernel of the CPU alone."""

    layers = (*EVERYWHERE, "buffered", "unused", "aside")

    @staticmethod
    def options(size: int) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries(
            {
                "each": st.booleans(),
                "mesh": st.sampled_from([(size,), (2, 2)] if size == 4 else [(size,), (1, size)]),
                "reshard": st.sampled_from(
                    [None, True, False, 2] if size == 4 else [None, True, False]
                ),
                "precision": st.sampled_from(["", "", "bf16", "reduce"]),
                "last": st.booleans(),
            }
        )

    @staticmethod
    def fit(model: Model, options: dict[str, Any]) -> Model:
        return in_one_type(model, options["each"])

    @classmethod
    def install(cls, stack: contextlib.ExitStack, recipe: Any) -> None:
        from torch_xla_cc.adapters import fsdp

        stack.enter_context(fsdp.installed())

    def wrap(
        self,
        network: Network,
        each: bool,
        mesh: tuple[int, ...],
        reshard: bool | int | None,
        precision: str,
        last: bool,
    ) -> nn.Module:
        """`last`: the last dimension of a parameter is sharded, where it divides."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        from torch.distributed.tensor import Shard

        made = init_device_mesh(
            self.device.type, mesh, mesh_dim_names=("dp", "shard")[-len(mesh) :]
        )
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if precision == "bf16" else None,
            reduce_dtype={"bf16": torch.float32, "reduce": torch.bfloat16}.get(precision),
        )

        def place(x: nn.Parameter) -> Shard | None:
            return Shard(x.dim() - 1) if x.dim() and x.shape[-1] % mesh[-1] == 0 else None

        options: dict[str, Any] = {"mesh": made, "mp_policy": policy}
        if reshard is not None:
            options["reshard_after_forward"] = reshard
        if last:
            options["shard_placement_fn"] = place
        for layer in units(network, each):
            fully_shard(layer, **options)
        fully_shard(network, **options)
        return network

    def part(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        self.model.set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    def clip(self, norm: float) -> Any:
        found = super().clip(norm)
        return found.full_tensor() if hasattr(found, "full_tensor") else found

    def resumed(self) -> Client:
        from torch.distributed.checkpoint import state_dict as states

        other = type(self)(self.recipe, self.device, seed=1)
        own = states.get_state_dict(self.model, self.optimizer)
        states.set_state_dict(
            other.model, other.optimizer, model_state_dict=own[0], optim_state_dict=own[1]
        )
        return other
