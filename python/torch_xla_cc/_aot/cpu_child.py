"""Compiles a program with the XLA:CPU of torch_xla, in a process of its own, and does not run it.

Request, on stdin: a line of JSON, {"ranks": 4, "parameters": [["f32", [8, 4]], ...]}, then the
bytes of a HloModuleProto. Answer, on stdout: those of the optimised module. torch_xla gives that
instead of the program it traced when a variable of the environment says so, which it reads once.
"""

from __future__ import annotations

import sys

sys.path.pop(0)  # this folder: its modules are not those that others import by these names

import json
import os
from typing import Any

_SPARE_THREADS = 2


def main() -> None:
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no part of the answer
    head = json.loads(sys.stdin.buffer.readline())
    module = sys.stdin.buffer.read()
    threads = str(head["ranks"] + _SPARE_THREADS)
    os.environ.update(
        PJRT_DEVICE="CPU",
        CPU_NUM_DEVICES=str(head["ranks"]),
        XLA_THREAD_POOL_SIZE=threads,
        PJRT_NPROC=threads,
        XLA_DUMP_POST_OPTIMIZATIONS="1",
    )
    import torch_xla
    from torch_xla.core import xla_model

    bindings: Any = torch_xla._XLAC  # type: ignore[attr-defined]
    xla_model.set_replication(torch_xla.device(0), torch_xla.devices())
    program = bindings._xla_op_computation_from_module_proto("inspected", module)
    parameters = [
        bindings._xla_create_placeholder_tensor({"type": dtype, "sizes": tuple(dims)})
        for dtype, dims in head["parameters"]
    ]
    results = bindings._xla_user_computation("xla::inspected", parameters, program)
    answer.write(bindings._get_xla_tensors_hlo_proto(results))
    answer.flush()
    os._exit(0)  # nothing is left to do, and the runtime takes seconds to end


if __name__ == "__main__":
    main()
