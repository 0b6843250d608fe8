"""What the XLA:CPU of torch_xla makes of a module, with its figures, and without running it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from .. import _hlo_pb
from .._aot import CompiledProgram, CompilerError, CompilerTimeout, crash
from .._hlo import proto
from .._hlo.instruction import arrays

_CHILD = Path(__file__).parents[1] / "_inspect/cpu_child.py"
_TEMPORARY = re.compile(r"^allocation \d+: size (\d+), preallocated-temp", re.M)


def compile_hlo(module: bytes, ranks: int, timeout_s: float) -> CompiledProgram:
    """Compile a serialized HloModuleProto for ranks on threads.

    torch_xla has no function that tells the figures: they are read where XLA writes its buffers
    down when it is asked to.
    """
    parameters = [
        (array.dtype, array.dims)
        for shape in _hlo_pb.HloModuleProto.FromString(module).host_program_shape.parameters
        for array in arrays(proto.type_text(shape))
    ]
    head = json.dumps({"ranks": ranks, "parameters": parameters}).encode()
    with tempfile.TemporaryDirectory(prefix="torch_xla_cc_") as folder:
        try:
            child = subprocess.run(
                [sys.executable, str(_CHILD)],
                input=head + b"\n" + module,
                capture_output=True,
                env={**os.environ, "XLA_FLAGS": f"--xla_dump_to={folder}"},
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CompilerTimeout(f"compiling for 'cpu' took more than {timeout_s} s") from None
        stderr = child.stderr.decode(errors="replace")
        if child.returncode == 1 and (refusal := _refusal(stderr)):
            raise CompilerError(f"compiling for 'cpu': {refusal}")
        if child.returncode != 0:
            raise crash("cpu", child.returncode, stderr)
        (buffers,) = Path(folder).glob("*buffer-assignment.txt")
        temporary = sum(map(int, _TEMPORARY.findall(buffers.read_text())))
    return CompiledProgram("cpu", child.stdout, {"temporaries": temporary}, {})


def _refusal(stderr: str) -> str:
    """What the compiler said, if it raised an exception in the child."""
    found = re.findall(r"^(?:RuntimeError|ValueError): (.*)", stderr, re.M)
    return str(found[-1]) if found else ""
