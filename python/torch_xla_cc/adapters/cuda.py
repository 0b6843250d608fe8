"""Programs that say "cuda" get another device: by default this rank's XLA device.

Training stacks name CUDA where they mean the device of the rank: `torch.cuda.current_device()`,
`x.cuda()`, `device="cuda"`, streams and events to order what XLA orders by data. What is changed:

- the functions of torch.cuda that are listed here, and nothing else of torch.cuda.
  `torch.cuda.is_available()` stays False: there are no kernels for it. `torch.manual_seed()` calls
  one of them, and so seeds the device;
- `torch.load(..., map_location="cuda")` puts what is loaded on the device;
- `torch.xla` is the module of XLA devices, for which torch.utils.checkpoint asks;
- modules keep the attributes of their parameters, and weights that they share, when they move to
  another device (adapters._modules).
- a mode of torch.overrides, on the thread that calls `install()`: in a call that makes or moves a
  tensor "cuda" and numbers of devices are the device, so is `x.cuda()`; `x.is_cuda` is True there,
  and `x.type()` says `torch.cuda.FloatTensor` and the like, as programs compare it.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from torch_xla_cc._runtime import forked, seeds
from torch_xla_cc._runtime.environment import number
from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc.adapters import _device_module, _loading, _modules, _random_state, _xla_device
from torch_xla_cc.adapters._mode import Function, Mode

_Generator = _random_state.Generator | torch.Generator


def _functions(device: torch.device, generator: _Generator) -> dict[str, Any]:
    """What torch.cuda gets, by name."""
    is_xla = device.type == "xla"
    return {
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "device_count": lambda: 1,
        # By PYTORCH_NVML_BASED_CUDA_CHECK, which DeepSpeed sets, torch asks device_count().
        "is_available": lambda: False,
        "is_current_stream_capturing": lambda: False,
        "synchronize": _xla_device.synchronize if is_xla else _xla_device.all_has_run,
        "empty_cache": lambda: None,
        "memory_allocated": lambda *_, **__: 0,
        "max_memory_allocated": lambda *_, **__: 0,
        "memory_reserved": lambda *_, **__: 0,
        "max_memory_reserved": lambda *_, **__: 0,
        "reset_peak_memory_stats": lambda *_, **__: None,
        "Stream": _xla_device.Stream,
        "Event": _xla_device.Event if is_xla else _xla_device.EventOfHost,
        "stream": _xla_device.stream,
        "current_stream": _xla_device.current_stream,
        "default_stream": _xla_device.default_stream,
        "default_generators": [generator],
        **_of_random(generator),
        "_is_in_bad_fork": forked.with_runtime,  # CUDA's is True in any process that was forked
        "_lazy_init": lambda: None,
        "_lazy_call": lambda function, **__: function(),
    }


def _of_random(generator: _Generator) -> dict[str, Any]:
    """What is in torch.cuda.random too."""

    def manual_seed(seed: int) -> None:
        generator.manual_seed(seed)

    def seed() -> None:
        generator.seed()

    def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
        states = list(new_states)
        if len(states) > 1:
            raise RuntimeError(
                f"set_rng_state_all: there are {len(states)} states, but a rank has one device. "
                "Give it the one of its own"
            )
        for state in states:
            generator.set_state(state)

    return {
        "get_rng_state": lambda *_, **__: generator.get_state(),
        "get_rng_state_all": lambda: [generator.get_state()],
        "set_rng_state": lambda new_state, *_, **__: generator.set_state(new_state),
        "set_rng_state_all": set_rng_state_all,
        "manual_seed": manual_seed,
        "manual_seed_all": manual_seed,
        "seed": seed,
        "seed_all": seed,
        "initial_seed": generator.initial_seed,
    }


def _is_cuda(device: object) -> bool:
    """Whether it names a CUDA device: as text, or by its number."""
    if type(device) is int:
        return True
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and device.partition(":")[0] == "cuda"


_IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]


class _Names(Mode):
    """Puts the device where a call says "cuda"."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        handlers = {
            torch.Tensor.cuda: lambda function, args, keywords: args[0].to(self._there()),
            torch.Tensor.to: self._to,
            torch.Tensor.type: self._type,
            _IS_CUDA: lambda function, args, keywords: args[0].device.type == device.type,
            torch.device: self._named,
        }
        super().__init__(handlers, "device", self._on)

    def _there(self) -> torch.device:
        """The device, for something that is about to use it."""
        if self._device.type == "xla":
            seeds.begin()
        return self._device

    def _on(self, function: Function, args: Sequence[Any], keywords: dict[str, Any]) -> Any:  # noqa: ANN401
        if _is_cuda(keywords.get("device")):
            keywords["device"] = self._there()
        return function(*args, **keywords)

    def _to(self, function: Function, args: Sequence[Any], keywords: dict[str, Any]) -> Any:  # noqa: ANN401
        args = [self._there() if _is_cuda(one) else one for one in args]
        return self._on(function, args, keywords)

    def _type(self, function: Function, args: Sequence[Any], keywords: dict[str, Any]) -> Any:  # noqa: ANN401
        if len(args) > 1 or keywords:
            return self._to(function, args, keywords)
        kind = self._device.type
        own = "torch." + ("" if kind == "cpu" else f"{kind}.")
        return function(*args).replace(own, "torch.cuda.", 1)

    def _named(self, function: Function, args: Sequence[Any], keywords: dict[str, Any]) -> Any:  # noqa: ANN401
        """torch.device(...), of ("cuda", 0) as well, where the number is no device."""
        what = args[0] if args else keywords.get("type", keywords.get("device"))
        return self._device if _is_cuda(what) else function(*args, **keywords)


def _own() -> torch.device:
    if number("WORLD_SIZE", 1) > 1:
        # Of a process among others. To ask torch_xla starts the runtime, which on TPU has to know
        # of the others by then; scripts for NCCL name their device before they make a world.
        return torch.device("xla", 0)
    import torch_xla

    return torch_xla.device()


def _that_have(name: str, theirs: object) -> list[types.ModuleType]:
    """Modules outside of torch that have imported it by name: Megatron-core's random states.

    torch's would keep what it is to call until there is CUDA.
    """
    return [
        module
        for key, module in [*sys.modules.items()]
        # What is None there cannot be imported; others have no attributes of their own.
        if getattr(module, "__dict__", {}).get(name) is theirs and key.partition(".")[0] != "torch"
    ]


def _make(changes: Changes, device: torch.device | str | None = None) -> None:
    if device is None:
        device = _own()
    device = torch.device(device)
    is_xla = device.type == "xla"
    generator = _random_state.Generator() if is_xla else torch.default_generator
    functions = _functions(device, generator)
    before = {name: changes.put(torch.cuda, name, value) for name, value in functions.items()}
    for module in _that_have("_lazy_call", before["_lazy_call"]):
        changes.put(module, "_lazy_call", functions["_lazy_call"])
    for name in _of_random(generator):
        changes.put(torch.cuda.random, name, functions[name])
    # Its own one takes streams of torch only, before the mode sees the call.
    changes.put(torch.Tensor, "record_stream", lambda x, stream: None)
    changes.enter(_modules.patches.held())
    if is_xla:
        changes.enter(_device_module.patches.held())
        load = _loading.onto(torch.load, device, _is_cuda)
        for module in torch, torch.serialization:
            changes.put(module, "load", load)
    changes.enter(_Names(device))


# The mode is of the thread that enters it.
patches = Patches("adapters.cuda", _make, once=True)


def install(device: torch.device | str | None = None) -> None:
    """Have programs that say "cuda" get `device`; this rank's XLA device if None.

    For ranks that are processes. `device` may be "cpu", to compare with a run on gloo.
    """
    patches.install(device)


def uninstall() -> None:
    """Undo install, on the thread that called it."""
    patches.uninstall()


def installed(
    device: torch.device | str | None = None,
) -> contextlib.AbstractContextManager[None]:
    """install() for a block, of one thread."""
    return patches.installed(device)
