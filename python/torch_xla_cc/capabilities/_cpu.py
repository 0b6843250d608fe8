"""What the XLA:CPU of torch_xla makes of a module, with its figures, and without running it."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from .._aot import CompiledProgram, compile_on_cpu

_TEMPORARY = re.compile(r"^allocation \d+: size (\d+), preallocated-temp", re.M)


def compile_hlo(module: bytes, ranks: int, timeout_s: float) -> CompiledProgram:
    """Compile a serialized HloModuleProto for ranks on threads.

    torch_xla has no function that tells the figures: they are read where XLA writes its buffers
    down when it is asked to.
    """
    with tempfile.TemporaryDirectory(prefix="torch_xla_cc_") as folder:
        hlo = compile_on_cpu(module, ranks, timeout_s, f"--xla_dump_to={folder}")
        (buffers,) = Path(folder).glob("*buffer-assignment.txt")
        temporary = sum(map(int, _TEMPORARY.findall(buffers.read_text())))
    return CompiledProgram("cpu", hlo, {"temporaries": temporary}, {})
