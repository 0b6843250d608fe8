"""What torch.compile gives when sizes change: of torch.distributed, and of torch_xla.compile."""

from __future__ import annotations

import compiled_calls as compiled
import torch
import torch.distributed as dist
import torch_xla

ROWS = (1, 2, 3, 1, 4)


def _values(function, device, rank, size, mark):
    found = []
    for call, rows in enumerate(ROWS):
        x = torch.arange(4.0 * size * rows).reshape(2 * size * rows, 2) + 10 * rank + call
        x = x.to(device)
        if mark:
            torch._dynamo.mark_dynamic(x, 0)
        found.append(compiled.of_call(function, dist.group.WORLD, x))
    return found


def both(rank, name, how):
    """By call: compiled on XLA, and as it is on the CPU. Or the error."""
    size = compiled.start()
    torch._dynamo.config.enable_cpp_symbolic_shape_guards = False  # they wait for a compiler
    function = getattr(compiled, name)
    if how == "torch_xla":
        ours = torch_xla.compile(function)
        ours.__name__ = name
    else:
        dynamic = {"changes": None, "marked": None, "dynamic": True}[how]
        ours = torch.compile(function, backend="openxla", fullgraph=True, dynamic=dynamic)
    try:
        got = _values(ours, torch_xla.device(), rank, size, how == "marked")
    except RuntimeError as error:
        return str(error), None
    return got, _values(function, "cpu", rank, size, False)
