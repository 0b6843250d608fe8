"""DeepSpeed's accelerator for XLA devices, and its kernel of Adam: see deepspeed.py."""

from __future__ import annotations

import abc
import contextlib
import functools
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from deepspeed import accelerator  # type: ignore[import-untyped]
from torch_xla import runtime

from torch_xla_cc.adapters import _random_state


class FusedAdamBuilder:
    """What FusedAdam asks for its kernel: Adam in operators of torch, which XLA fuses."""

    NAME = "fused_adam"

    def load(self, verbose: bool = True) -> type[FusedAdamBuilder]:
        """The module that has `multi_tensor_adam`."""
        return FusedAdamBuilder

    @staticmethod
    def multi_tensor_adam(
        chunk_size: int,
        overflow: torch.Tensor,
        lists: list[list[torch.Tensor]],
        lr: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        step: int,
        decoupled: int,
        bias_correction: int,
        weight_decay: float,
    ) -> None:
        """A step of Adam on lists of gradients, parameters, first and second moments, in place."""
        step_size, root = lr, 1.0
        if bias_correction:
            step_size, root = lr / (1 - beta1**step), (1 - beta2**step) ** 0.5
        # As data: what a constant holds is compiled into the program, and these differ each step.
        sizes = torch.tensor([step_size, root, lr * weight_decay]).to(lists[1][0].device)
        for g, p, m, v in zip(*lists, strict=True):
            g32, p32, m32, v32 = (x.float() for x in (g, p, m, v))
            if not decoupled:
                g32 = g32 + weight_decay * p32
            m32 = beta1 * m32 + (1 - beta1) * g32
            v32 = beta2 * v32 + (1 - beta2) * g32 * g32
            change = sizes[0] * m32 / (v32.sqrt() / sizes[1] + epsilon)
            if decoupled:
                change = change + sizes[2] * p32
            p.copy_(p32 - change)
            m.copy_(m32)
            v.copy_(v32)


class XlaAccelerator(accelerator.abstract_accelerator.DeepSpeedAccelerator):  # type: ignore[misc]
    """This process's XLA device. It has no streams: the graph orders what depends on what."""

    Stream = None
    Event = None
    _torch_pins_host_memory = False

    def __init__(self) -> None:
        self._name = "xla"
        self._communication_backend_name = "cpu:gloo,xla:xla_cc"
        self._compile_backend = "openxla"
        self._peak = 0  # bytes, as seen when somebody asked

    # One queue, in order: DeepSpeed need not synchronize streams, and measures time on the host.

    def is_synchronized_device(self) -> bool:
        return True

    def use_host_timers(self) -> bool:
        return True

    def resolves_data_dependency(self) -> bool:
        return True

    def handles_memory_backpressure(self) -> bool:
        return True

    def stream(self, stream: None) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def current_stream(self, device_index: int | None = None) -> None:
        return None

    def default_stream(self, device_index: int | None = None) -> None:
        return None

    def synchronize(self, device_index: int | None = None) -> None:
        torch_xla.sync(wait=True)

    # The device. A process has one, whatever its local rank is.

    def device_name(self, device_index: int | None = None) -> str:
        return "xla" if device_index is None else str(torch_xla.device())

    def device(self, device_index: int | None = None) -> torch.device:
        return torch_xla.device()

    def set_device(self, device_index: int) -> None:
        pass

    def current_device(self) -> int:
        return int(torch_xla.device().index)

    def current_device_name(self) -> str:
        return str(torch_xla.device())

    def device_count(self) -> int:
        return runtime.addressable_device_count()

    def is_available(self) -> bool:
        return True

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "xla"

    # Random numbers.

    def random(self) -> Any:  # noqa: ANN401 (a module)
        return torch.random

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        _random_state.put(new_state)

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        return _random_state.get()

    def manual_seed(self, seed: int) -> None:
        torch_xla.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch_xla.manual_seed(seed)

    def initial_seed(self) -> int:
        return torch.initial_seed()

    def default_generator(self, device_index: int) -> torch.Generator:
        return torch.default_generator

    # Memory: of the device where the runtime tells, else (on CPU) of this process.

    def empty_cache(self) -> None:
        pass

    def memory_stats(self, device_index: int | None = None) -> dict[str, int]:
        try:
            used = int(xm.get_memory_info(torch_xla.device())["bytes_used"])
        except RuntimeError:
            used = int(psutil.Process().memory_info().rss)
        self._peak = max(self._peak, used)
        return {"allocated_bytes.all.current": used, "allocated_bytes.all.peak": self._peak}

    def memory_allocated(self, device_index: int | None = None) -> int:
        return self.memory_stats()["allocated_bytes.all.current"]

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return self.memory_stats()["allocated_bytes.all.peak"]

    memory_cached = memory_reserved = memory_allocated
    max_memory_cached = max_memory_reserved = max_memory_allocated

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        self._peak = 0

    reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats

    def total_memory(self, device_index: int | None = None) -> int:
        try:
            return int(xm.get_memory_info(torch_xla.device())["bytes_limit"])
        except RuntimeError:
            return int(psutil.virtual_memory().total)

    def available_memory(self, device_index: int | None = None) -> int:
        return self.total_memory() - self.memory_allocated()

    # Types.

    def is_bf16_supported(self) -> bool:
        return True

    def is_fp16_supported(self) -> bool:
        return True

    def is_fp64_supported(self) -> bool:
        # Has DeepSpeed take norms in float. TPUs have no double; and of torch.where of a float and
        # a double, which it does with these, torch_xla 2.9 takes the result for a float.
        return False

    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.float, torch.half, torch.bfloat16]

    def is_triton_supported(self) -> bool:
        return False

    # Kernels.

    def communication_backend_name(self) -> str:
        return self._communication_backend_name

    def op_builder_dir(self) -> str:
        return "deepspeed.ops.op_builder.cpu"

    def get_op_builder(self, class_name: str) -> Any:  # noqa: ANN401 (a class of deepspeed)
        if class_name == "FusedAdamBuilder":
            return FusedAdamBuilder
        from deepspeed.ops.op_builder import cpu  # type: ignore[import-untyped]

        # What works on tensors of the host does so here: the optimizers of ZeRO-Offload.
        return getattr(cpu, class_name, cpu.NotImplementedBuilder)

    def create_op_builder(self, class_name: str) -> Any:  # noqa: ANN401
        # Its collectives in shared memory take CPU tensors alone.
        return None if class_name == "ShareMemCommBuilder" else self.get_op_builder(class_name)()

    def build_extension(self) -> Any:  # noqa: ANN401
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    # What is not there on XLA devices, and need not be.

    def range_push(self, msg: str, domain: Any = None, category: Any = None) -> None:  # noqa: ANN401
        pass

    def range_pop(self, domain: Any = None) -> None:  # noqa: ANN401
        pass

    def lazy_call(self, callback: Any) -> Any:  # noqa: ANN401
        return callback()

    def create_graph(self) -> None:
        return None

    def capture_to_graph(
        self,
        graph: Any,  # noqa: ANN401
        pool: Any = None,  # noqa: ANN401
        stream: Any = None,  # noqa: ANN401
    ) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def replay_graph(self, graph: Any) -> None:  # noqa: ANN401
        pass

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:  # noqa: ANN401
        return tensor.new_empty(shape)

    def export_envs(self) -> list[str]:
        return ["PJRT_DEVICE"]

    def visible_devices_envs(self) -> list[str]:
        return ["TPU_VISIBLE_CHIPS"]

    def set_visible_devices_envs(self, current_env: dict[str, str], local_ids: list[int]) -> None:
        for name in self.visible_devices_envs():
            current_env[name] = ",".join(map(str, local_ids))

    def get_compile_backend(self) -> str:
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        self._compile_backend = backend


def _tensor_type(dtype: torch.dtype) -> property:
    """What makes a tensor of the device from a list, as torch.FloatTensor does on the host."""
    return property(
        lambda _: functools.partial(torch.tensor, dtype=dtype, device=torch_xla.device())
    )


for _name, _dtype in {
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "DoubleTensor": torch.double,
    "FloatTensor": torch.float,
    "HalfTensor": torch.half,
    "IntTensor": torch.int,
    "LongTensor": torch.long,
}.items():
    setattr(XlaAccelerator, _name, _tensor_type(_dtype))
abc.update_abstractmethods(XlaAccelerator)
