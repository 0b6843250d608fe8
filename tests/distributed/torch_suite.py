"""PyTorch's own tests of backends, run against xla_cc on the processes of processes.py.

`torch.testing._internal.distributed.distributed_test` has them for gloo, MPI and NCCL. A test runs
here with its own code and its own assertions, in a group of its own. What is adapted:

  - Where tensors are: what a test makes, or moves to a GPU, is on the XLA device (OnXla).
  - What decides whether a test is skipped: each runs that torch_suite_left_out.py does not name.
  - "nccl", where a test names the backend of its GPUs, is xla_cc.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_map_only

MODULE = "torch.testing._internal.distributed.distributed_test"
SIZE = 4  # what most of the suite's subgroups need
GROUP_TIMEOUT_S = 60

# They choose a model by the name of the backend, and none for one that they do not know.
AS_NCCL = {
    "test_accumulate_gradients_no_sync",
    "test_accumulate_gradients_no_sync_allreduce_hook",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_accumulate_gradients_no_sync_grad_is_view",
}


@functools.cache
def names() -> list[str]:
    """All tests of the suite, read and not imported: that takes seconds, and changes settings."""
    spec = importlib.util.find_spec(MODULE)
    assert spec is not None and spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    outer = next(node for node in tree.body if getattr(node, "name", "") == "DistributedTest")
    assert isinstance(outer, ast.ClassDef)
    tests = outer.body[0]
    assert isinstance(tests, ast.ClassDef) and tests.name == "_DistTestBase"
    found = {node.name for node in tests.body if isinstance(node, ast.FunctionDef)}
    return sorted(name for name in found if name.startswith("test"))


# Below: a rank.


class OnXla(TorchFunctionMode):
    """Puts what is made without a device, or for a GPU, on the XLA device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def _placed(self, value: Any) -> Any:
        """The device, where `value` is a number of a GPU or its device."""
        if isinstance(value, int) and not isinstance(value, bool):
            return self.device
        if isinstance(value, torch.device) and value.type != "cpu":
            return self.device
        return self.device if isinstance(value, str) and value.startswith("cuda") else value

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0].to(self.device)
        if function is torch.randperm:
            # That of torch_xla has no seed: it is another one on each rank, and in each graph.
            return function(*args, **{**kwargs, "device": "cpu"}).to(self.device)
        if function in _device_constructors():
            given = kwargs.get("device")
            kwargs["device"] = self.device if given is None else self._placed(given)
        elif function is torch.Tensor.to:
            args = (args[0], *map(self._placed, args[1:2]), *args[2:])
            if "device" in kwargs:
                kwargs["device"] = self._placed(kwargs["device"])
        return function(*args, **kwargs)


def _on_cpu(value: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda x: x.cpu(), value)


def _manual_seed(seed: int, seed_others: Any = torch.manual_seed) -> torch.Generator:
    import torch_xla

    torch_xla.manual_seed(seed)  # as it does for the devices that it knows
    return seed_others(seed)


def _new_group(*args: Any, backend: str | None = None, new: Any = dist.new_group, **kwargs: Any):
    return new(*args, backend="xla_cc" if backend == "nccl" else backend, **kwargs)


def _ddp_init(self: Any, *args: Any, init: Any = DistributedDataParallel.__init__, **kwargs: Any):
    """A process has one device: whose number a test gives is that of the rank's GPU."""
    for argument in ("device_ids", "output_device"):
        kwargs.pop(argument, None)
    init(self, *args, **kwargs)


@functools.cache
def _suite() -> Any:
    """The module, and its tests as a class."""
    import torch_xla
    from torch.testing._internal import common_distributed as common

    # They ask for CUDA, or for eight processes; three are enough for all of these tests.
    common.skip_if_no_gpu = common.skip_if_small_worldsize = lambda test: test
    common.skip_if_lt_x_gpu = lambda _: lambda test: test
    # Which GPUs a rank has; OnXla makes of each the device.
    common.init_multigpu_helper = lambda size, _: {rank: [rank] for rank in range(size)}
    _manual_seed(1)  # the same on each rank
    with OnXla(torch_xla.device()):  # the models of the module, too
        module = importlib.import_module(MODULE)

    class Suite(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore
        def _barrier(self, *args: Any, timeout: float = 0, **kwargs: Any) -> None:
            # That of the suite, ten seconds, is short while the others compile.
            super()._barrier(*args, timeout=max(timeout, GROUP_TIMEOUT_S), **kwargs)

        def assertEqual(self, x: Any, y: Any, *args: Any, **kwargs: Any) -> None:
            # Not all types can be compared on the device, and each comparison would be compiled.
            with torch._C.DisableTorchFunction():
                super().assertEqual(_on_cpu(x), _on_cpu(y), *args, **kwargs)

    return module, Suite


@contextlib.contextmanager
def _adapted(module: Any, name: str, folder: str, device: torch.device) -> Iterator[None]:
    nothing = lambda *_, **__: None  # noqa: E731
    with contextlib.ExitStack() as stack:
        patch = lambda *args: stack.enter_context(mock.patch.object(*args))  # noqa: E731
        stack.enter_context(mock.patch.dict(os.environ, TEMP_DIR=folder))
        if name in AS_NCCL:
            patch(module, "BACKEND", "nccl")
        if name == "test_barrier_timeout_global":  # it makes another world
            patch(module, "INIT_METHOD", f"file://{folder}/again")
        for backends in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
            patch(module, backends, [*getattr(module, backends), "xla_cc"])
        patch(module.Barrier, "barrier_id", 0)  # files count it, and this folder has none yet
        # A type, which no mode sees called.
        patch(torch, "DoubleTensor", functools.partial(torch.empty, dtype=torch.double))
        patch(torch, "manual_seed", _manual_seed)
        patch(dist, "new_group", _new_group)
        patch(DistributedDataParallel, "__init__", _ddp_init)
        for function in ("set_device", "synchronize", "manual_seed"):
            patch(torch.cuda, function, nothing)
        patch(torch.cuda, "current_device", lambda: 0)
        stack.enter_context(OnXla(device))
        yield


def run_test(rank: int, name: str, folder: str) -> None:
    """One test in a world of its own. `folder` is new, and the same for all ranks."""
    import torch_xla

    module, suite = _suite()
    test = suite(name)
    test.rank = rank
    test.file_name = f"{folder}/world"
    _manual_seed(1)
    dist.set_debug_level(dist.DebugLevel.OFF)  # tests leave another
    dist.init_process_group(
        "xla_cc",
        init_method=f"file://{folder}/world",
        rank=rank,
        world_size=SIZE,
        timeout=timedelta(seconds=GROUP_TIMEOUT_S),
    )
    try:
        with _adapted(module, name, folder, torch_xla.device()):
            test._barrier()
            getattr(test, name)()
            test._barrier(wait_for=SIZE)
    finally:
        with contextlib.suppress(Exception):
            dist.destroy_process_group()


def listed(_: int) -> list[str]:
    """The names of the tests, as the imported suite has them."""
    return [name for name in dir(_suite()[1]) if name.startswith("test")]
