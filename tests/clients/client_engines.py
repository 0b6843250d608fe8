"""DeepSpeed and accelerate, as clients of random_clients.py."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import torch
import torch.distributed as dist
from client_fsdp import Fsdp1, Fsdp2
from client_kinds import EVERYWHERE, Client, Ddp, Zero, replaced
from random_models import Model, Network


def shared_folder() -> str:
    """A new one, of which rank 0 tells the others."""
    folders = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folders, 0, device=torch.device("cpu"))
    return str(folders[0])


class DeepSpeed(Client):
    """ZeRO of DeepSpeed, stages 0 to 3. It holds the model in one type."""

    layers = (*EVERYWHERE, "buffered", "unused")

    @staticmethod
    def options(size: int) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries(
            {
                "stage": st.sampled_from([3, 1, 2, 0]),
                "precision": st.sampled_from(["", "", "bf16"]),
                "bucket": st.sampled_from([500, 64, 10**6]),
                "overlap": st.booleans(),
                "contiguous": st.booleans(),
                "persistent": st.sampled_from([0, 10, 10**5]),
            }
        )

    @staticmethod
    def fit(model: Model, options: dict[str, Any]) -> Model:
        layers = [replaced(x, dtype="f32") for x in model.layers]
        return replaced(model, layers=tuple(layers))

    @classmethod
    @contextlib.contextmanager
    def on(cls, kind: str, recipe: Any) -> Iterator[None]:
        os.environ["DS_ACCELERATOR"] = "cpu"  # what it takes when it is imported
        import deepspeed
        from deepspeed.accelerator import get_accelerator

        from torch_xla_cc.adapters import deepspeed as adapter
        from torch_xla_cc.adapters import optimizers

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # two minutes of compiling
        with contextlib.ExitStack() as stack:
            if kind == "xla":
                if recipe.ends_steps:
                    stack.enter_context(optimizers.installed())
                stack.enter_context(adapter.installed())
            assert get_accelerator().device_name() == kind
            deepspeed.comm.comm.cdb = None
            deepspeed.init_distributed(verbose=False)
            # It counts modules and parameters, and compares their numbers between ranks: one that
            # had no part in a world before would raise, and the others wait for it.
            offload = deepspeed.runtime.zero.parameter_offload.DeepSpeedZeRoOffload
            offload._register_deepspeed_module.__defaults__[0][0] = 0
            deepspeed.zero.Init.param_id = 0
            try:
                yield
            finally:
                deepspeed.comm.destroy_process_group()

    def __init__(self, recipe: Any, where: torch.device, seed: int = 0) -> None:
        import deepspeed

        self.recipe, self.device = recipe, where
        options = recipe.options
        network = Network(recipe.model)
        kind, of_optimizer = self.make()
        trained = [x for x in network.parameters() if x.requires_grad]
        self.model, self.optimizer, *_ = deepspeed.initialize(
            model=network,
            optimizer=kind(trained, **of_optimizer),
            config={
                "train_micro_batch_size_per_gpu": 1,
                "gradient_accumulation_steps": recipe.accumulate,
                "gradient_clipping": 0.1 if recipe.clip else 0.0,
                "zero_optimization": {
                    "stage": options["stage"],
                    "reduce_bucket_size": options["bucket"],
                    "allgather_bucket_size": options["bucket"],
                    "stage3_param_persistence_threshold": options["persistent"],
                    "overlap_comm": options["overlap"],
                    "contiguous_gradients": options["contiguous"],
                },
                "zero_force_ds_cpu_optimizer": False,
                "zero_allow_untested_optimizer": True,
                "bf16": {"enabled": options["precision"] == "bf16"},
            },
        )

    def backward(self, loss: torch.Tensor) -> None:
        self.model.backward(loss)
        self.model.step()  # which knows when a step is whole

    def step(self) -> None:
        """Done."""

    def clip(self, norm: float) -> Any:
        total = self.model.get_global_grad_norm()
        # A double on the CPU: the adapter's is_fp64_supported says why on XLA it is none.
        return None if total is None else float(total)

    def gradients(self) -> list[tuple[str, Any]]:
        return []

    def parameters(self) -> list[tuple[str, Any]]:
        import deepspeed

        found = []
        stage3 = self.recipe.options["stage"] == 3
        for name, x in self.model.module.named_parameters():
            with deepspeed.zero.GatheredParameters([x], enabled=stage3):
                found.append((name, x.detach().cpu().clone()))
        return found

    def state(self) -> dict[str, Any]:
        return dict(self.parameters())

    def resumed(self) -> Client:
        folder = shared_folder()
        self.model.save_checkpoint(folder)
        other = type(self)(self.recipe, self.device, seed=1)
        other.model.load_checkpoint(folder)
        return other


class Accelerate(Ddp):
    """accelerate, whose models are DistributedDataParallel's."""

    @staticmethod
    def options(size: int) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries({"precision": st.sampled_from(["", "", "bf16"])})

    fit = Client.fit

    @classmethod
    @contextlib.contextmanager
    def on(cls, kind: str, recipe: Any) -> Iterator[None]:
        from torch_xla_cc.adapters import accelerate as adapter
        from torch_xla_cc.adapters import optimizers

        with contextlib.ExitStack() as stack:
            if kind == "xla":
                if recipe.ends_steps:
                    stack.enter_context(optimizers.installed())
                stack.enter_context(adapter.installed())
            try:
                yield
            finally:
                from accelerate.state import AcceleratorState, GradientState

                AcceleratorState._reset_state(reset_partial_state=True)
                GradientState._reset_state()

    def __init__(self, recipe: Any, where: torch.device, seed: int = 0) -> None:
        os.environ["USE_TORCH_XLA"] = "0"
        from accelerate import Accelerator, DistributedDataParallelKwargs
        from accelerate.utils import GradientAccumulationPlugin

        self.recipe, self.device = recipe, where
        self.accelerator = Accelerator(
            **({} if where.type == "xla" else {"cpu": True}),
            mixed_precision=recipe.options["precision"] or None,
            gradient_accumulation_plugin=GradientAccumulationPlugin(recipe.accumulate),
            kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
        )
        assert self.accelerator.device.type == where.type
        assert self.accelerator.num_processes == recipe.size
        network = Network(recipe.model)
        kind, options = self.make()
        trained = [x for x in network.parameters() if x.requires_grad]
        self.model, self.optimizer = self.accelerator.prepare(network, kind(trained, **options))

    def part(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        return self.accelerator.accumulate(self.model)

    def backward(self, loss: torch.Tensor) -> None:
        # It divides by the number of parts, and steps when they are there.
        self.accelerator.backward(loss)

    def clip(self, norm: float) -> Any:
        return self.accelerator.clip_grad_norm_(self.trained(), norm)

    def state(self) -> dict[str, Any]:
        return self.accelerator.get_state_dict(self.model)

    def resumed(self) -> Client:
        """In the same model, which has been changed."""
        folder = shared_folder()
        # Of those that share memory safetensors has one, and it takes empty ones to do so.
        model = self.recipe.model
        shared = model.tied or any(layer.kind == "empty" for layer in model.layers)
        self.accelerator.save_state(folder, safe_serialization=not shared)
        self.accelerator.wait_for_everyone()
        with torch.no_grad():
            for x in self.model.parameters():
                x.mul_(1.5)
        self.accelerator.load_state(folder)
        return self


KINDS: dict[str, type[Client]] = {
    "ddp": Ddp,
    "zero": Zero,
    "fsdp1": Fsdp1,
    "fsdp2": Fsdp2,
    "deepspeed": DeepSpeed,
    "accelerate": Accelerate,
}
