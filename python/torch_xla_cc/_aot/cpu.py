"""What the XLA:CPU of torch_xla makes of a module, without running it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from .._hlo import proto, protobuf
from .._hlo.instruction import arrays
from .compiler import crash
from .errors import CompilerError, CompilerTimeout

_CHILD = Path(__file__).with_name("cpu_child.py")
_RAISED = re.compile(r"^(?:RuntimeError|ValueError): (.*)", re.M)


def compile_on_cpu(module: bytes, ranks: int, timeout_s: float, flags: str = "") -> bytes:
    """Compile a serialized HloModuleProto for ranks on threads, in a child process.

    Returns the optimised module. `flags` are XLA_FLAGS, instead of the caller's: those may have a
    process dump, and read what it is not meant to.
    """
    parameters = [
        (array.dtype, array.dims)
        for shape in protobuf.HloModuleProto.FromString(module).host_program_shape.parameters
        for array in arrays(proto.type_text(shape))
    ]
    head = json.dumps({"ranks": ranks, "parameters": parameters}).encode()
    try:
        child = subprocess.run(
            [sys.executable, str(_CHILD)],
            input=head + b"\n" + module,
            capture_output=True,
            env={**os.environ, "XLA_FLAGS": flags},
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CompilerTimeout(f"compiling for 'cpu' took more than {timeout_s} s") from None
    if child.returncode == 0:
        return child.stdout
    stderr = child.stderr.decode(errors="replace")
    if child.returncode == 1 and (raised := _RAISED.findall(stderr)):
        raise CompilerError(f"compiling for 'cpu': {raised[-1]}")
    raise crash("cpu", child.returncode, stderr)
