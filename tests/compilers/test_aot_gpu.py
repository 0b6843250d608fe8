"""torch_xla_cc._aot for GPUs: the real CUDA compiler, called in a child process, with no GPU."""

import importlib.util
import sys
import tempfile
from pathlib import Path

import pytest

INSTALL = "pip install 'torch_xla_cc[aot-gpu]'"
pytest.importorskip("google.protobuf", reason=f"protobuf is not installed: {INSTALL}")

from test_aot import COLLECTIVES, RANKS, ROWS, collective  # noqa: E402

from torch_xla_cc import _aot  # noqa: E402

TARGETS = ["gpu:a100x8", "gpu:h100x8", "gpu:b200x8"]
H100 = "gpu:h100x8"
BYTES = ROWS * RANKS * 128 * 4


def has_plugin() -> bool:
    parent = importlib.util.find_spec("jax_plugins")
    folders = parent.submodule_search_locations if parent else ()
    return any(Path(folder, "xla_cuda12/xla_cuda_plugin.so").is_file() for folder in folders or ())


needs_plugin = pytest.mark.skipif(
    not has_plugin(), reason=f"jax-cuda12-pjrt is not installed: {INSTALL}"
)


@needs_plugin
@pytest.mark.parametrize("target", TARGETS)
def test_every_generation_compiles(target):
    assert _aot.parse_target(target).devices == RANKS
    program = _aot.compile_hlo(collective("all-gather"), target)
    (found,) = _aot.collectives(program)
    assert found.opcode == "all-gather"
    assert program.memory["arguments"] == BYTES
    assert program.memory["outputs"] == BYTES * RANKS
    assert program.cost == {}  # this compiler states none


@needs_plugin
@pytest.mark.parametrize("opcode", COLLECTIVES)
def test_native_collective_is_one_instruction_of_the_compiled_program(opcode):
    (found,) = _aot.collectives(_aot.compile_hlo(collective(opcode), H100))
    assert found.opcode == opcode
    assert found.shape.startswith("f32[")


@needs_plugin
def test_each_program_of_a_batch_is_its_own():
    modules = [collective(opcode) for opcode in COLLECTIVES]
    results = _aot.compile_many([b"\xff malformed", *modules, modules[0]], H100)
    assert isinstance(results[0], _aot.CompilerError)
    assert not isinstance(results[0], _aot.CompilerCrashed)
    found = [[made.opcode for made in _aot.collectives(program)] for program in results[1:]]
    assert found == [[opcode] for opcode in [*COLLECTIVES, COLLECTIVES[0]]]


@needs_plugin
def test_fewer_replicas_than_devices():
    program = _aot.compile_hlo(collective("all-gather"), "gpu:h100x16", replicas=RANKS)
    assert [made.opcode for made in _aot.collectives(program)] == ["all-gather"]


@needs_plugin
def test_flags_of_the_caller_are_not_the_compilers(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--no_such_flag_of_xla")  # would end the process
    _aot.compile_hlo(collective("all-reduce"), H100)


@needs_plugin
def test_nothing_is_left_behind(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _aot.compile_hlo(collective("all-reduce"), H100)
    assert list(tmp_path.iterdir()) == []


def test_missing_compiler_is_named_with_the_command(monkeypatch):
    monkeypatch.delenv("XLA_CUDA_PLUGIN_PATH", raising=False)
    monkeypatch.setitem(sys.modules, "jax_plugins", None)
    with pytest.raises(_aot.CompilerMissing, match=r"xla_cuda12.*torch_xla_cc\[aot-gpu\]"):
        _aot.compile_hlo(b"", H100)


def test_compiler_that_cannot_be_loaded_is_missing(tmp_path, monkeypatch):
    library = tmp_path / "plugin.so"
    library.write_text("no library")
    monkeypatch.setenv("XLA_CUDA_PLUGIN_PATH", str(library))
    with pytest.raises(_aot.CompilerMissing, match=r"cannot be loaded.*\[aot-gpu\]"):
        _aot.compile_hlo(b"", H100)


@pytest.mark.parametrize(
    "target", ["gpu:h100", "gpu:h100x0", "gpu:x8", "gpu:gtx1080x2", "gpu:h100:8", "cuda:h100x8"]
)
def test_unknown_target_is_refused_with_the_known_ones(target):
    with pytest.raises(ValueError, match=f"target '{target}'.*gpu:h100x8"):
        _aot.compile_hlo(b"", target)
