"""A rank of the pod without torch_xla: it runs modules, for who probes what jaxlib takes.

It runs by its path, isolated; its last argument is the descriptor of a Connection. A request is a
module and its arguments as (type, dimensions, bytes), None to compile it alone, and how often to
run it. The answer is how it was refused, or nothing, and the optimised module, its temporary bytes,
each output's bytes, and the seconds that each run took.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

_PR_SET_PDEATHSIG = 1


def main(path_of_jaxlib: str, rank: int, world: int, address: str, pipe: Connection) -> None:
    """Serves until who asks has gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.path += [os.path.dirname(os.path.abspath(__file__)), path_of_jaxlib]
    sys.modules["jax"] = None  # type: ignore[assignment] # as in start.py

    import numpy as np

    os.environ["TORCH_XLA_CC_POD_COLLECTIVES"] = "gloo"  # start.py, which this is not, loads others
    from pod_device import buffers, programs, store  # type: ignore[import-not-found]
    from pod_device.jaxlib_xla import xla  # type: ignore[import-not-found]
    from pod_device.world import World  # type: ignore[import-not-found]

    options = {"rank": str(rank), "world": str(world), "coordinator": address}
    joined = World(options, lambda what: None, lambda: "")
    settings = xla.CompileOptions()
    settings.num_replicas = world
    as_bytes = memoryview(settings.SerializeAsString())

    def run(code: bytes, arguments: list[Any] | None, times: int) -> tuple[Any, ...]:
        # All come at once.
        program = programs.compiled(joined.client, "hlo", memoryview(code), as_bytes, patient=False)
        (module,) = program.loaded.hlo_modules()
        temporary = program.loaded.get_compiled_memory_stats().temp_size_in_bytes
        found = module.as_serialized_hlo_module_proto(), temporary
        if arguments is None:
            return *found, [], []
        inputs = [
            store.copied(joined.client, kind, dims, np.frombuffer(content, np.uint8))
            for kind, dims, content in arguments
        ]
        took = []
        for _ in range(times):
            began = time.perf_counter()
            results = program.loaded.execute_sharded(inputs)
            made = [row[0] for row in results.disassemble_into_single_device_arrays()]
            for array in made:
                array.block_until_ready()
            took.append(time.perf_counter() - began)
            if len(took) == 1 and program.calls.has("reduce-scatter"):
                buffers.widen()  # for the programs that come after, which are not to blame
        sizes = program.output_sizes if times == 1 else []  # who times them does not look
        outputs = [bytes(store.read(x, 0, n)) for x, n in zip(made, sizes, strict=False)]
        return *found, outputs, took

    while True:
        try:
            request = pipe.recv()
        except (EOFError, ConnectionError):
            os._exit(0)  # jaxlib's own end would wait for peers
        try:
            answer: Any = "", run(*request)
        except Exception as error:
            answer = str(error) or type(error).__name__, None
        pipe.send(answer)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Connection(int(sys.argv[5])))
