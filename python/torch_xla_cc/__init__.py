"""Native collective communication for PyTorch/XLA, beside the stock torch_xla wheel.

    from torch_xla_cc import xla_model as xm   # all_gather, reduce_scatter, send, recv, ...
    torch_xla_cc.launch(fn, args, nprocs)      # one rank a device
    torch_xla_cc.install()                     # torch_xla's own functions use ours

Importing it changes one thing of torch_xla: its own all_reduces pin no layout, as ours
(_runtime/unpinned.py).
"""

from __future__ import annotations

import atexit as _atexit
import functools as _functools
import importlib as _importlib
from pathlib import Path as _Path
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from torch_xla_cc._runtime import versions as _versions

_versions.check()

import torch
import torch_xla

try:
    from torch_xla_cc import _C
except ImportError as error:
    raise ImportError(
        f"the extension module torch_xla_cc._C cannot be loaded: {error}. In a source tree, build "
        "it with `make build` or `pip install -e .`"
    ) from error

from torch_xla_cc import capabilities, functions, regions, xla_model
from torch_xla_cc._C import (
    CollectiveMismatchError,
    CollectiveTimeoutError,
    FallbackForbidden,
    RanksDisagree,
)
from torch_xla_cc._ops import fallback_policy as _fallback_policy
from torch_xla_cc._ops import partitions as _partitions
from torch_xla_cc._ops import views as _views
from torch_xla_cc._ops.channels import Channel
from torch_xla_cc._ops.fallback_policy import FallbackWarning, fallback
from torch_xla_cc._ops.recording import Call, record
from torch_xla_cc._ops.targets import lowering_for
from torch_xla_cc._processes import world as _world
from torch_xla_cc._runtime import device as _device
from torch_xla_cc._runtime import device_tensors as _device_tensors
from torch_xla_cc._runtime import environment as _environment
from torch_xla_cc._runtime import stand_ins as _stand_ins
from torch_xla_cc._runtime import unpinned as _unpinned
from torch_xla_cc._runtime.endings import RankFailed
from torch_xla_cc._runtime.private import XLAC as _XLAC
from torch_xla_cc._runtime.versions import UnsupportedVersion
from torch_xla_cc._threads import compile_bridge as _compile_bridge
from torch_xla_cc._threads import read_hooks as _read_hooks
from torch_xla_cc._threads import worlds as _worlds
from torch_xla_cc._threads.launch import launch
from torch_xla_cc.adapters._torch_xla import install, installed, uninstall

if _TYPE_CHECKING:
    from torch_xla_cc._inspect.api import (
        assert_lowers_to,
        assert_no_copy,
        assert_overlaps,
        compare_ranks,
        inspect,
    )

_C.set_folders(
    f"{_Path(__file__).parent}/", [f"{_Path(m.__file__ or '').parent}/" for m in (torch, torch_xla)]
)
_C.set_python_side(
    {
        "computation_from_module": _XLAC._xla_op_computation_from_module_proto,
        "user_computation": _XLAC._xla_user_computation,
        "stand_in": _stand_ins.of,
        "increment_counter": _XLAC._xla_increment_counter,
        "running_target": _device.running_target,
        "first_token": _read_hooks.first_token,
        "needs_run": _device_tensors.needs_run,
        "run_live": _device_tensors.run_live,
        "to_dlpack": _device_tensors.to_dlpack,
        "from_dlpack": _device_tensors.from_dlpack,
        "fallback_warning": FallbackWarning,
        "is_manual": _partitions.is_manual,
        "place_of_view": _views.place,
        "repeats": _views.repeats,
        "run_pending": _read_hooks.run_pending,
        "run_graph": _read_hooks.run_graph_of_this,
        "drop_pending": _read_hooks.lose,
        "answer_peers": _world.answer_peers,
        "run_alone": _world.run_alone,
        "run_at_end": _world.run_at_end,
        "bridge_state": _compile_bridge.state,
        "refuse_capture": _compile_bridge.refuse,
    }
)
_read_hooks.begin()
_worlds.on_load(_functools.partial(_importlib.import_module, "torch_xla_cc.distributed"))
_atexit.register(_C.let_go)
_unpinned.unpin()
_C.set_fallback(_fallback_policy.from_environment())

__version__ = "1.0.0"


def set_debug(on: bool) -> None:
    """Have every HLO instruction carry the caller's file and line, into XLA's dumps and profiles.

    Makes a module per call site, so it is off by default; TORCH_XLA_CC_DEBUG=1 turns it on.
    """
    _C.set_debug(on)


set_debug(_environment.switch("TORCH_XLA_CC_DEBUG"))

_INSPECTION = ("assert_lowers_to", "assert_no_copy", "assert_overlaps", "compare_ranks", "inspect")


def __getattr__(name: str) -> _Any:  # noqa: ANN401 (functions of several types)
    """Those of inspection, when they are asked for: they need packages that training does not."""
    if name not in _INSPECTION:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from torch_xla_cc._inspect import api

    return getattr(api, name)


__all__ = [
    "Call",
    "Channel",
    "CollectiveMismatchError",
    "CollectiveTimeoutError",
    "FallbackForbidden",
    "FallbackWarning",
    "RankFailed",
    "RanksDisagree",
    "UnsupportedVersion",
    "assert_lowers_to",
    "assert_no_copy",
    "assert_overlaps",
    "capabilities",
    "compare_ranks",
    "fallback",
    "functions",
    "inspect",
    "install",
    "installed",
    "launch",
    "lowering_for",
    "record",
    "regions",
    "set_debug",
    "uninstall",
    "xla_model",
]
