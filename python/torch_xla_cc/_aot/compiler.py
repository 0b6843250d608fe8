"""Compiling ahead of time: what the real compiler makes of an HLO module, with no device."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .._hlo import protobuf
from .._runtime.versions import how_to_install
from .errors import CompilerCrashed, CompilerError, CompilerMissing, CompilerTimeout
from .options import compile_options
from .overrides import Options, as_texts, refused
from .program import CompiledProgram
from .target import Target, find_library, parse_target

_CHILD = Path(__file__).with_name("child.py")
_STDERR_TAIL = 16_000
_GRACE_S = 10.0
# Stack traces without symbols, and attempts to report the crash to Google.
_NOISE = re.compile(r"^\s+@ |symbolize|RAW: ")


class _Run(NamedTuple):
    """What came of one child: answers to the first modules, and how it ended."""

    results: list[CompiledProgram | CompilerError]
    exit_code: int
    stderr: str


def compile_hlo(
    module: bytes,
    target: str,
    *,
    replicas: int | None = None,
    timeout_s: float = 120,
    options: Options | None = None,
) -> CompiledProgram:
    """Compile a serialized HloModuleProto for `target`: "tpu:v5e:2x4", "gpu:h100x8".

    One partition, and `replicas` replicas: as many as the target has devices if None. With "spmd:"
    before the target's name they are partitions, of one replica.
    `options` are the compiler's own, by name.
    Raises ValueError for a target or an option that does not exist, CompilerError for a program
    that the compiler refuses, CompilerCrashed, CompilerTimeout and CompilerMissing as they say.
    """
    (result,) = compile_many(
        [module], target, replicas=replicas, timeout_s=timeout_s, options=options
    )
    if isinstance(result, CompilerError):
        raise result
    return result


def compile_many(
    modules: Sequence[bytes],
    target: str,
    *,
    replicas: int | None = None,
    timeout_s: float = 120,
    options: Options | None = None,
) -> list[CompiledProgram | CompilerError]:
    """compile_hlo for several modules, of which the failed ones give their error as result.

    They share a child process until one kills it. The limit of time is for each of them.
    """
    where = parse_target(target)
    if timeout_s <= 0:
        raise ValueError(f"timeout_s={timeout_s}: expected a number of seconds above 0")
    replicas = where.devices if replicas is None else replicas
    if not 1 <= replicas <= where.devices:
        raise ValueError(f"replicas={replicas}: {target!r} has 1 to {where.devices}, one a device")
    library = find_library(where)
    overrides = as_texts(options, target)
    request = compile_options(replicas, where.partitioned, overrides)
    results: list[CompiledProgram | CompilerError] = []
    while pending := modules[len(results) :]:
        run = _run_child(where, library, request, pending, timeout_s)
        for one in run.results:
            if isinstance(one, CompilerError) and (error := refused(str(one), overrides, target)):
                raise error
        results += run.results
        # A module is blamed only if it had a fresh child for itself: else it gets one now.
        if not run.results:
            results.append(_death(where, run, timeout_s))
    return results


def _run_child(
    target: Target, library: Path, options: bytes, modules: Sequence[bytes], timeout_s: float
) -> _Run:
    command = [sys.executable, "-I", "-S", str(_CHILD)]
    with _dump_folder(target) as (dump, environment):
        head = {
            "library": str(library),
            "topology": target.topology,
            "options": target.options,
            "dump": dump,
            "timeout_s": timeout_s,
            "sizes": [len(part) for part in (options, *modules)],
        }
        request = b"".join((json.dumps(head).encode(), b"\n", options, *modules))
        try:
            # The child limits itself, so that it ends without its parent too; this is for one that
            # cannot even be interrupted.
            child = subprocess.run(
                command,
                input=request,
                capture_output=True,
                env={**os.environ, **environment},
                timeout=(timeout_s + _GRACE_S) * (len(modules) + 1),
                check=False,
            )
            code, out, err = child.returncode, child.stdout, child.stderr
        except subprocess.TimeoutExpired as stuck:
            code, out, err = -signal.SIGALRM, stuck.stdout or b"", stuck.stderr or b""
    return _Run(_read_answers(out, target), code, err[-_STDERR_TAIL:].decode(errors="replace"))


@contextlib.contextmanager
def _dump_folder(target: Target) -> Iterator[tuple[str, dict[str, str]]]:
    """A folder, for plugins that write programs into one, and the environment that says so."""
    if not target.plugin.dumps:
        yield "", target.environment
        return
    with tempfile.TemporaryDirectory(prefix="torch_xla_cc_") as folder:
        # The caller's own XLA_FLAGS are for the XLA in its process, and end one without such flags.
        flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_proto"
        own = target.environment.get("XLA_FLAGS", "")
        yield folder, {**target.environment, "XLA_FLAGS": f"{own} {flags}"}


def _read_answers(out: bytes, target: Target) -> list[CompiledProgram | CompilerError]:
    results: list[CompiledProgram | CompilerError] = []
    while b"\n" in out:
        line, _, out = out.partition(b"\n")
        head = json.loads(line)
        if len(out) < head["size"]:
            break  # the child died while it wrote this one
        program, out = out[: head["size"]], out[head["size"] :]
        failed = head.get("failed")
        if failed == "library":
            raise CompilerMissing(
                f"the compiler for {target.name!r} cannot be loaded ({head['message']}): "
                f"{how_to_install(target.plugin.extra)}"
            )
        if failed == "topology":
            raise ValueError(f"target {target.name!r}: {head['message']}")
        if failed:
            results.append(CompilerError(f"compiling for {target.name!r}: {head['message']}"))
        else:
            optimised = protobuf.HloModuleProtoWithConfig.FromString(program).hlo_module
            hlo = optimised.SerializeToString()
            results.append(CompiledProgram(target.name, hlo, head["memory"], head["cost"]))
    return results


def _death(target: Target, run: _Run, timeout_s: float) -> CompilerError:
    if run.exit_code == -signal.SIGALRM:
        return CompilerTimeout(f"compiling for {target.name!r} took more than {timeout_s} s")
    return crash(target.name, run.exit_code, run.stderr)


def crash(target: str, exit_code: int, stderr: str) -> CompilerCrashed:
    """The error of a compiler whose process has ended so, with its last words."""
    how = f"exit code {exit_code}"
    if exit_code < 0:
        how = f"signal {-exit_code}, {signal.strsignal(-exit_code)}"
    last_words = [line for line in stderr.splitlines() if line and not _NOISE.search(line)]
    return CompilerCrashed(
        f"the compiler for {target!r} crashed ({how}); the last it printed:\n"
        + "\n".join(last_words[-10:]),
        exit_code,
        stderr,
    )
