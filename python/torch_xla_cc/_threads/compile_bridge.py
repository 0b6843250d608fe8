"""torch.compile with backend "openxla": torch_xla's bridge captures a graph, and runs it later.

The bridge calls each operator of a graph to see whether torch_xla has it, cuts the graph around
those that read a tensor on the host, and calls the rest once more to capture and compile it. From
then on it runs what was compiled, and no operator is called: what a collective did on the host
while the graph was captured would never be done again.
"""

from __future__ import annotations

import sys
from typing import Any

from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc._runtime.private import XLAC, bridge
from torch_xla_cc._threads import read_hooks
from torch_xla_cc._threads.worlds import this_rank

AWAY, LOOKS, CAPTURES = range(3)  # Bridge in torch_xla_cc/python_side.h

_LOOKING = bridge.partition_fx_graph_for_cpu_fallback.__code__
_CAPTURING = bridge.extract_graph_helper.__code__


class _Returns(bridge.SpecialReturnHandler):  # type: ignore[misc]
    """Outputs of a captured graph that are inputs, which XLA's programs leave out.

    torch_xla's own fails with IndexError on copies of an input, and dynamo makes such of what a
    collective gives: `tensor.copy_(all_reduce(tensor))`. And it has the parameters of a graph
    ordered with what is left out in it, but compiled without, which may be another order.
    """

    def __init__(self, inputs: Any, outputs: Any, updated: Any, constants: Any) -> None:  # noqa: ANN401
        given = {id(x) for x, changed in zip(inputs, updated, strict=True) if not changed}
        computed = XLAC._check_tensor_need_materialization(outputs)
        for at, x in enumerate(outputs):
            # A view is computed. A graph that computes nothing cannot be run.
            if not computed[at] and (id(x) not in given or (at == 0 and not any(computed))):
                outputs[at] = x.view(x.shape)
        super().__init__(inputs, outputs, updated, constants)
        # The bridge's list: it goes on with it.
        outputs[:] = [x for x in outputs if id(x) not in given]


def _replace(made: Changes) -> None:
    made.put(bridge, "SpecialReturnHandler", _Returns)


# By the first graph that has collectives of ours, for good: what it captured has no end. Its parts
# are captured again for each new size, those without a collective too, and nothing says so before.
_OURS = Patches("torch_xla_cc._threads.compile_bridge", _replace)


def state() -> int:
    """Where the bridge is on this thread, by what calls this."""
    found = AWAY
    frame = sys._getframe()
    while frame is not None and found != CAPTURES:
        if frame.f_code is _CAPTURING:
            found = CAPTURES
        elif frame.f_code is _LOOKING:
            found = LOOKS
        frame = frame.f_back  # type: ignore[assignment]
    if found != AWAY:
        _OURS.install()  # it is made when a graph has been captured
    return found


def refuse(op: str) -> None:
    """Raise: what the bridge captures goes through the host."""
    if this_rank() is not None:
        read_hooks.drop(read_hooks.default_rank())
    raise RuntimeError(
        f'{op}: torch.compile with backend="openxla" and dynamic shapes cannot leave it out of the '
        "graph that it captures, and it goes through the host, so it would run once and never "
        'again. Compile with dynamic=False, or with backend="aot_eager"'
    )
