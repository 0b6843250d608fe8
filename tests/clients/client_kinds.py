"""How each client wraps a model and trains it: the same calls for all."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import torch
import torch.distributed as dist
from random_models import Model, Network
from torch import nn

EVERYWHERE = ("dense", "norm", "conv", "twice", "tied")


def device(kind: str) -> torch.device:
    import torch_xla

    return torch_xla.device() if kind == "xla" else torch.device("cpu")


def is_rough(recipe: Any) -> bool:
    """Whether it computes or sends in 16 bits."""
    sixteen = ("bf16", "fp16", "reduce")  # the last: gradients
    return "bf16" in recipe.model.dtypes or any(x in sixteen for x in recipe.options.values())


def replaced(recipe: Any, **changes: Any) -> Any:
    """A part of a recipe, with changes."""
    return dataclasses.replace(recipe, **changes)


class Client:
    """Plain: what has no wrapper. `device` is that of a rank."""

    layers = (*EVERYWHERE, "buffered", "empty", "scale", "unused", "aside")
    mixes = True

    def __init__(self, recipe: Any, device: torch.device, seed: int = 0) -> None:
        self.recipe, self.device = recipe, device
        network = Network(recipe.model)
        tied = [x for x in network.modules() if getattr(x, "kind", "") == "tied"]
        if seed:  # of one into which a state is loaded
            with torch.no_grad():
                for x in network.parameters():
                    x.mul_(1.5)
        network.to(device)
        for x in tied:
            x.other.weight = x.linear.weight  # torch_xla makes two of a weight that moves
        self.model = self.wrap(network, **recipe.options)
        self.optimizer = self.optimize()

    @staticmethod
    def options(size: int) -> st.SearchStrategy[dict[str, Any]]:
        return st.just({})

    @staticmethod
    def fit(model: Model, options: dict[str, Any]) -> Model:
        """One that the client takes."""
        return model

    @classmethod
    @contextlib.contextmanager
    def on(cls, kind: str, recipe: Any) -> Iterator[None]:
        """What is installed while it trains."""
        from torch_xla_cc.adapters import optimizers

        with contextlib.ExitStack() as stack:
            if kind == "xla" and recipe.ends_steps:
                stack.enter_context(optimizers.installed())
            if kind == "xla":
                cls.install(stack, recipe)
            yield

    @classmethod
    def install(cls, stack: contextlib.ExitStack, recipe: Any) -> None:
        """Its adapter. It has none: torch.utils.checkpoint alone needs torch.xla."""
        from torch_xla_cc.adapters import dtensor

        if any(layer.again for layer in recipe.model.layers):
            stack.enter_context(dtensor.installed())

    def wrap(self, network: Network) -> nn.Module:
        return network

    def make(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        options: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.01, "foreach": self.recipe.foreach}
        if self.recipe.optimizer == "sgd":
            return torch.optim.SGD, {**options, "momentum": 0.9}
        # Of so large an epsilon that what should be nothing does not decide.
        return torch.optim.AdamW, {**options, "eps": 1.0 if is_rough(self.recipe) else 1e-2}

    def trained(self) -> list[nn.Parameter]:
        return [x for x in self.model.parameters() if x.requires_grad]

    def optimize(self) -> Any:
        kind, options = self.make()
        return kind(self.trained(), **options)

    def part(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def clip(self, norm: float) -> Any:
        return nn.utils.clip_grad_norm_(self.trained(), norm)

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def gradients(self) -> list[tuple[str, Any]]:
        return [(name, x.grad) for name, x in self.model.named_parameters()]

    def parameters(self) -> list[tuple[str, Any]]:
        return list(self.model.named_parameters())

    def state(self) -> dict[str, Any]:
        return self.model.state_dict()

    def resumed(self) -> Client:
        """Another one, into which everything was loaded."""
        other = type(self)(self.recipe, self.device, seed=1)
        other.model.load_state_dict(self.model.state_dict())
        other.optimizer.load_state_dict(self.optimizer.state_dict())
        return other


HOOKS = ("", "", "", "allreduce", "bf16", "fp16", "power")


class Ddp(Client):
    """DistributedDataParallel."""

    @staticmethod
    def options(size: int) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries(
            {
                "unused": st.sampled_from([True, True, True, False]),
                "static": st.sampled_from([False, False, True]),
                "views": st.booleans(),
                "bucket": st.sampled_from([25, 1e-4, 1e-3]),
                "hook": st.sampled_from(HOOKS),
            }
        )

    @staticmethod
    def fit(model: Model, options: dict[str, Any]) -> Model:
        if options["unused"] or options["static"]:
            return model
        kept = [x for x in model.layers if x.kind not in ("unused", "aside")]
        return replaced(model, layers=tuple(kept))

    def wrap(
        self, network: Network, unused: bool, static: bool, views: bool, bucket: float, hook: str
    ) -> nn.Module:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

        model = nn.parallel.DistributedDataParallel(
            network,
            find_unused_parameters=unused,
            static_graph=static,
            gradient_as_bucket_view=views,
            bucket_cap_mb=bucket,
        )
        if hook == "power":
            # It compresses from the second step on; before, it is an all_reduce.
            state = powerSGD_hook.PowerSGDState(
                None, matrix_approximation_rank=1, start_powerSGD_iter=100
            )
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        elif hook:
            hooks = {
                "allreduce": default_hooks.allreduce_hook,
                "bf16": default_hooks.bf16_compress_hook,
                "fp16": default_hooks.fp16_compress_hook,
            }
            model.register_comm_hook(None, hooks[hook])
        return model

    def part(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if last else self.model.no_sync()


class Zero(Ddp):
    """ZeroRedundancyOptimizer, under DistributedDataParallel."""

    @staticmethod
    def options(size: int) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries({"views": st.booleans(), "bucketed": st.booleans()})

    fit = Client.fit

    def wrap(self, network: Network, views: bool, bucketed: bool) -> nn.Module:
        return nn.parallel.DistributedDataParallel(
            network, find_unused_parameters=True, gradient_as_bucket_view=views
        )

    def optimize(self) -> Any:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        kind, options = self.make()
        bucketed = self.recipe.options["bucketed"]
        trained = self.trained()
        return ZeroRedundancyOptimizer(trained, kind, parameters_as_bucket_view=bucketed, **options)

    def resumed(self) -> Client:
        other = type(self)(self.recipe, self.device, seed=1)
        other.model.load_state_dict(self.model.state_dict())
        for rank in range(dist.get_world_size()):  # all load it, and each call is for one
            self.optimizer.consolidate_state_dict(to=rank)
            if rank == dist.get_rank():
                state = self.optimizer.state_dict()
        other.optimizer.load_state_dict(state)
        return other
