"""Compiles programs with the XLA:CPU of torch_xla, in a process of its own, and runs none.

Its arguments are the descriptor of a Connection and the number of ranks. A request is two messages:
the types of the parameters as JSON, [["f32", [8, 4]], ...], and a HloModuleProto. The answer is two
as well: why it was refused, or nothing, and the optimised module. torch_xla gives that instead of
the program it traced when a variable of the environment says so, which it reads once.
"""

from __future__ import annotations

import sys

sys.path.pop(0)  # this folder: its modules are not those that others import by these names

import json
import os
from multiprocessing.connection import Connection
from typing import Any

_SPARE_THREADS = 2


def main(pipe: Connection[bytes, bytes], ranks: int) -> None:
    threads = str(ranks + _SPARE_THREADS)
    os.environ.update(
        PJRT_DEVICE="CPU",
        CPU_NUM_DEVICES=str(ranks),
        XLA_THREAD_POOL_SIZE=threads,
        PJRT_NPROC=threads,
        XLA_DUMP_POST_OPTIMIZATIONS="1",
    )
    import torch_xla
    from torch_xla.core import xla_model

    bindings: Any = torch_xla._XLAC  # type: ignore[attr-defined]
    xla_model.set_replication(torch_xla.device(0), torch_xla.devices())
    while True:
        parameters, module = json.loads(pipe.recv_bytes()), pipe.recv_bytes()
        try:
            optimised = _compiled(bindings, parameters, module)
        except (RuntimeError, ValueError) as error:
            pipe.send_bytes((str(error).splitlines() or ["it gave no reason"])[0].encode())
        else:
            pipe.send_bytes(b"")
            pipe.send_bytes(optimised)


def _compiled(bindings: Any, parameters: list[tuple[str, list[int]]], module: bytes) -> bytes:  # noqa: ANN401
    program = bindings._xla_op_computation_from_module_proto("inspected", module)
    operands = [
        bindings._xla_create_placeholder_tensor({"type": dtype, "sizes": tuple(dims)})
        for dtype, dims in parameters
    ]
    results = bindings._xla_user_computation("xla::inspected", operands, program)
    optimised: bytes = bindings._get_xla_tensors_hlo_proto(results)
    return optimised


if __name__ == "__main__":
    try:
        main(Connection(int(sys.argv[1])), int(sys.argv[2]))
    except (EOFError, ConnectionError):
        os._exit(0)  # the process that asked has ended; the runtime takes seconds to end
