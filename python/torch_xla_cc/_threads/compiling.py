"""torch.compile on ranks that are threads: what is of the process there, kept by thread."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.passes.utils import fuser_utils

from torch_xla_cc import _C
from torch_xla_cc._runtime.patches import changes
from torch_xla_cc._runtime.private import (
    CheckFunctionManager,
    MetricsContext,
    bridge,
    convert_frame,
    dynamo_callback,
    dynamo_config,
    dynamo_utils,
    eval_frame,
    symbolic_trace,
)
from torch_xla_cc._threads import fx_meta, read_hooks


class _Thread(threading.local):
    reads = 0


_thread = _Thread()


class _Counters:
    """What the bridge asks `torch_xla.debug.metrics` for, by thread: there it is of the process.

    It clears all counters, calls an operator, and looks for one that says it ran on the host. Such
    an operator reads a tensor, and comes through the read hooks.
    """

    @staticmethod
    def counter_value(_: str) -> int:
        return 0  # added again after clear_counters()

    @staticmethod
    def clear_counters() -> None:
        _thread.reads = _C.reads()

    @staticmethod
    def executed_fallback_ops() -> list[str]:
        return ["a read of a tensor"] if _C.reads() != _thread.reads else []


class _Metrics(threading.local, MetricsContext):  # type: ignore[misc]
    """torch's record of a compile, of each thread its own, and one compile at a time.

    torch has a lock for that, but does not take it where it compiles a backward graph.
    """

    def __enter__(self) -> _Metrics:
        convert_frame.compile_lock.acquire()
        MetricsContext.__enter__(self)
        return self

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401 (three of several types)
        MetricsContext.__exit__(self, *error)
        convert_frame.compile_lock.release()


def _is_fx_symbolic_tracing() -> bool:
    # Of torch.fx._symbolic_trace, whose globals it sees. A thread that traces for torch.compile
    # has the lock; without the last line, others that call a compiled function meanwhile are told
    # that they trace it.
    from torch_xla_cc._runtime.private import convert_frame

    return (
        _is_fx_tracing_flag  # type: ignore[name-defined]  # noqa: F821
        and not torch.compiler.is_compiling()
        and convert_frame.compile_lock._is_owned()
    )


def _tensors_first(extract: Any, model: torch.fx.GraphModule, inputs: Any) -> Any:  # noqa: ANN401
    """What `extract` makes of a model, which gets its numbers behind its tensors.

    The bridge counts tensors only where it writes to arguments, and so would write to others.
    """
    order = sorted(range(len(inputs)), key=lambda i: not isinstance(inputs[i], torch.Tensor))
    if order == list(range(len(inputs))):
        return extract(model, inputs)
    nodes = [node for node in model.graph.nodes if node.op == "placeholder"]
    for i in reversed(order):
        next(iter(model.graph.nodes)).prepend(nodes[i])
    model.recompile()
    run = extract(model, [inputs[i] for i in order])
    return lambda *args: run(*(args[i] for i in order))


class _Dynamic:
    """`dynamic=` of torch.compile, which is a setting of the process while a function runs.

    torch restores what it found, which is another thread's. Here the last thread restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._found: dict[str, bool] = {}

    def make(self, enable: bool) -> Callable[[], Callable[[], None]]:
        """torch._dynamo.eval_frame.make_set_enable_dynamic."""
        settings = {"assume_static_by_default": not enable}
        settings |= {} if enable else {"automatic_dynamic_shapes": False}

        def enter() -> Callable[[], None]:
            with self._lock:
                self._inside += 1
                for name, value in settings.items():
                    self._found.setdefault(name, getattr(dynamo_config, name))
                    setattr(dynamo_config, name, value)
            return self._leave

        return enter

    def _leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                for name, value in self._found.items():
                    setattr(dynamo_config, name, value)
                self._found.clear()


class _Collections:
    """None while anything is traced.

    With four ranks that trace a backward pass, a tensor was found without its attributes
    ("'FunctionalTensor' object has no attribute 'elem'"), and never with collections off. It seems
    that autograd's engine, on another thread, holds it where a collection does not look.
    """

    def __init__(self) -> None:
        self._were_on = False

    def pause(self, _: object) -> None:
        self._were_on = gc.isenabled()
        gc.disable()

    def go_on(self, _: object) -> None:
        if self._were_on:
            gc.enable()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        handler = dynamo_callback.callback_handler
        handler.register_start_callback(self.pause)
        handler.register_end_callback(self.go_on)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # torch._dynamo.reset() has removed them
                handler.remove_start_callback(self.pause)
                handler.remove_end_callback(self.go_on)


class _Invalidated:
    """`CheckFunctionManager.invalidate`, which keeps the guards while a thread may be in them.

    They are those of a compiled function that all ranks call, and go when an object that they know
    goes, such as a group. Who looks at guards gives up the interpreter lock to take theirs: another
    rank that ends its group meanwhile would free them.
    """

    _MOST = 256  # of which a thread is in one for moments

    def __init__(self) -> None:
        self._kept: collections.deque[Any] = collections.deque(maxlen=self._MOST)

    def around(self, invalidate: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(invalidate)
        def keep(manager: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (passed through)
            self._kept.append(getattr(manager, "guard_manager", None))
            invalidate(manager, *args, **kwargs)

        return keep

    def forget(self) -> None:
        self._kept.clear()


@contextlib.contextmanager
def compiles_on_threads(ranks: int) -> Iterator[None]:
    """Around a launch: what torch.compile and the bridge keep for the process, kept by thread."""

    @contextlib.contextmanager
    def one_at_a_time(*args: Any) -> Iterator[Any]:  # noqa: ANN401 (passed through)
        # It sets a flag of the process, and a graph that all ranks have is compiled once.
        with convert_frame.compile_lock, donor_config(*args) as saved:
            yield saved

    def extract(model: torch.fx.GraphModule, inputs: Any) -> Any:  # noqa: ANN401 (passed through)
        # What it makes of graphs, fx fills from variables of the process, as torch.compile does.
        rank = read_hooks.default_rank()
        read_hooks.run_pending(rank)  # peers may need the lock to come
        with convert_frame.compile_lock:
            # It takes a graph apart, and cannot do so again if a collective in it fails.
            whole = copy.deepcopy(model.graph)
            try:
                return _tensors_first(extract_helper, model, inputs)
            except BaseException:
                model.graph = whole
                if _C.ranks_pending(rank):
                    read_hooks.lose(rank)  # what it has traced is no call
                raise

    with changes("torch_xla_cc.launch") as made:
        # Ranks compile one function each for its device.
        for name in ("recompile_limit", "accumulated_recompile_limit"):
            made.put(dynamo_config, name, getattr(dynamo_config, name) * ranks)
        # Functions that were compiled before have a reference to it.
        tracing = symbolic_trace.is_fx_symbolic_tracing
        made.put(tracing, "__code__", _is_fx_symbolic_tracing.__code__)
        fx_meta.keep_by_thread(made)
        metrics = _Metrics(on_exit=dynamo_utils.record_compilation_metrics)
        made.put(dynamo_utils, "_METRICS_CONTEXT", metrics)
        # What is captured stays in the order of the program: fx goes by depth, and graphs of ranks
        # with the same collectives may differ in that. All the time: a rank that captures gives up
        # the lock while it waits for others.
        made.put(fuser_utils, "topo_sort", sorted)
        made.put(eval_frame, "make_set_enable_dynamic", _Dynamic().make)
        made.put(bridge, "metrics", _Counters())
        donor_config = made.put(bridge, "alias_with_buffer_donor_config", one_at_a_time)
        extract_helper = made.put(bridge, "extract_compiled_graph_helper", extract)
        invalidated = _Invalidated()
        invalidate = CheckFunctionManager.invalidate
        made.put(CheckFunctionManager, "invalidate", invalidated.around(invalidate))
        made.after(invalidated.forget)
        # Called when the first rank begins, and when the last one ends.
        made.enter(_Collections().paused())
        yield
