"""torch_xla_cc._aot: the real TPU compiler, called in a child process, with no TPU."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

INSTALL = "pip install 'torch_xla_cc[aot]'"
pytest.importorskip("google.protobuf", reason=f"protobuf is not installed: {INSTALL}")

from torch_xla_cc import _aot  # noqa: E402
from torch_xla_cc._hlo import protobuf as _hlo_pb  # noqa: E402

V5E = "tpu:v5e:2x4"
RANKS = 8
ROWS = 1024  # of one block: what a rank gives to, or gets from, each other rank
COLLECTIVES = ["all-gather", "all-reduce", "reduce-scatter", "collective-permute", "all-to-all"]

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason=f"libtpu is not installed: {INSTALL}"
)


class Module:
    """An HLO module under construction: every computation and instruction with an id of its own."""

    def __init__(self) -> None:
        self.proto = _hlo_pb.HloModuleProto(name="test")
        self.ids = iter(range(1, 1000))

    def computation(self, name: str) -> Any:
        number = next(self.ids)
        return self.proto.computations.add(name=f"{name}.{number}", id=number)

    def add(self, computation: Any, opcode: str, shape: list[int], *operands: Any, **more: Any):
        number = next(self.ids)
        made = computation.instructions.add(name=f"{opcode}.{number}", id=number, opcode=opcode)
        made.MergeFrom(_hlo_pb.HloInstructionProto(**more))
        made.shape.element_type = _hlo_pb.PrimitiveType.F32
        made.shape.dimensions.extend(shape)
        made.shape.layout.minor_to_major.extend(reversed(range(len(shape))))
        made.operand_ids.extend(operand.id for operand in operands)
        return made

    def end(self, computation: Any, root: Any) -> Any:
        computation.root_id = root.id
        computation.program_shape.result.CopyFrom(root.shape)
        for made in computation.instructions:
            if made.opcode == "parameter":
                computation.program_shape.parameters.append(made.shape)
                computation.program_shape.parameter_names.append(made.name)
        return computation

    def serialize(self, entry: Any) -> bytes:
        self.proto.entry_computation_id = entry.id
        self.proto.entry_computation_name = entry.name
        self.proto.host_program_shape.CopyFrom(entry.program_shape)
        return bytes(self.proto.SerializeToString())


def collective(opcode: str, *, before: str = "", channel_id: int = 0) -> bytes:
    """A module of one collective over all ranks, and of what the case wants before it."""
    module = Module()
    more: dict[str, Any] = {"channel_id": channel_id}
    if "reduce" in opcode:
        reducer = module.computation("sum")
        x, y = (module.add(reducer, "parameter", [], parameter_number=i) for i in range(2))
        module.end(reducer, module.add(reducer, "add", [], x, y))
        more["called_computation_ids"] = [reducer.id]
    if opcode == "collective-permute":
        pairs = [{"source": rank, "target": (rank + 1) % RANKS} for rank in range(RANKS)]
        more["source_target_pairs"] = pairs
    else:
        more["collective_device_list"] = {"replica_groups": [{"replica_ids": range(RANKS)}]}
    if opcode in ("all-gather", "reduce-scatter", "all-to-all"):
        more["dimensions"] = [0]

    main = module.computation("main")
    shape = [ROWS * RANKS, 128]
    x = module.add(main, "parameter", shape)
    if before == "negate":
        x = module.add(main, "negate", shape, x)
    if before == "token":  # a scalar added to every element: how torch_xla orders collectives
        token = module.add(main, "parameter", [], parameter_number=1)
        x = module.add(main, "add", shape, x, module.add(main, "broadcast", shape, token))
    scale = {"all-gather": RANKS, "reduce-scatter": 1 / RANKS}.get(opcode, 1)
    root = module.add(main, opcode, [int(shape[0] * scale), 128], x, **more)
    return module.serialize(module.end(main, root))


@needs_libtpu
@pytest.mark.parametrize("opcode", COLLECTIVES)
def test_native_collective_is_one_instruction_of_the_compiled_program(opcode: str) -> None:
    program = _aot.compile_hlo(collective(opcode), V5E)
    (found,) = _aot.collectives(program)
    assert found.opcode == opcode
    assert found.in_entry
    assert found.channel_id is None
    assert found.shape.startswith("f32[")  # of the result also where start and done are apart
    assert _aot.elementwise_before(program, found) == []
    assert program.memory["arguments"] == ROWS * RANKS * 128 * 4
    assert program.cost["bytes accessed"] > 0


@needs_libtpu
@pytest.mark.parametrize(("before", "passes"), [("negate", ["negate"]), ("token", ["fusion"])])
@pytest.mark.parametrize("opcode", COLLECTIVES)
def test_pass_over_the_operand_is_found(opcode: str, before: str, passes: list[str]) -> None:
    program = _aot.compile_hlo(collective(opcode, before=before), V5E)
    (found,) = _aot.collectives(program)
    assert [made.opcode for made in _aot.elementwise_before(program, found)] == passes


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v4:2x2x2", "tpu:v5p:2x2x2", "tpu:v6e:2x4"])
def test_every_generation_compiles_for_one_device_a_chip(target: str) -> None:
    assert _aot.parse_target(target).devices == RANKS
    (found,) = _aot.collectives(_aot.compile_hlo(collective("all-gather"), target))
    assert found.opcode == "all-gather"


@needs_libtpu
def test_text_is_that_of_the_optimised_program() -> None:
    pytest.importorskip("jaxlib", reason=f"jaxlib is not installed: {INSTALL}")
    text = _aot.compile_hlo(collective("all-gather"), V5E).text()
    assert "is_scheduled=true" in text
    assert " all-gather(" in text


@needs_libtpu
def test_refused_and_crashing_modules_of_a_batch_keep_to_themselves() -> None:
    good, crash = collective("all-gather"), collective("collective-permute", channel_id=1)
    results = _aot.compile_many([good, b"\xff malformed", crash, crash, good], V5E)
    assert [type(result) for result in results] == [
        _aot.CompiledProgram,
        _aot.CompilerError,
        _aot.CompilerCrashed,
        _aot.CompilerCrashed,
        _aot.CompiledProgram,
    ]
    assert "failed to deserialize HloModuleProto" in str(results[1])
    assert isinstance(results[2], _aot.CompilerCrashed)
    assert results[2].exit_code < 0
    assert "collective_permute_emitter" in str(results[2])


@needs_libtpu
def test_compile_hlo_raises_what_a_batch_returns() -> None:
    with pytest.raises(_aot.CompilerError, match="failed to deserialize HloModuleProto"):
        _aot.compile_hlo(b"\xff malformed", V5E)
    with pytest.raises(_aot.CompilerTimeout, match=r"more than 0\.01 s"):
        _aot.compile_hlo(collective("all-gather"), V5E, timeout_s=0.01)


@needs_libtpu
@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("time.sleep(60)", _aot.CompilerTimeout),
        ("sys.exit(3)", _aot.CompilerCrashed),
        ("print('{\"size\": 5}'); print('abc', end='')", _aot.CompilerCrashed),
    ],
)
def test_child_that_hangs_or_dies_is_an_error(
    body: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child.py"
    child.write_text(f"import sys, time\n{body}\n")
    monkeypatch.setattr(_aot.compiler, "_CHILD", child)
    monkeypatch.setattr(_aot.compiler, "_GRACE_S", 0.5)
    with pytest.raises(error):
        _aot.compile_hlo(b"", V5E, timeout_s=0.5)


def test_missing_compiler_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    monkeypatch.setitem(sys.modules, "libtpu", None)
    with pytest.raises(_aot.CompilerMissing, match=r"libtpu.*pip install 'torch_xla_cc\[aot\]'"):
        _aot.compile_hlo(b"", V5E)


def test_compiler_that_cannot_be_loaded_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "libtpu.so"
    library.write_text("no library")
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(library))
    with pytest.raises(_aot.CompilerMissing, match=r"cannot be loaded.*pip install"):
        _aot.compile_hlo(b"", V5E)


def test_missing_printer_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib.xla_client", None)
    with pytest.raises(_aot.CompilerMissing, match=r"jaxlib.*pip install"):
        _aot.CompiledProgram(V5E, b"", {}, {}).text()


@pytest.mark.parametrize("target", ["", "tpu", "v5e:2x4", "tpu:v9:2x2", "tpu:v5e:0x4", "tpu:v5e:8"])
def test_unknown_target_is_refused_with_the_known_ones(target: str) -> None:
    with pytest.raises(ValueError, match=f"target '{target}'.*tpu:v4:2x2x1, tpu:v5e:2x4"):
        _aot.compile_hlo(b"", target)


@pytest.mark.parametrize(
    "wrong", [{"replicas": RANKS + 1}, {"replicas": 0}, {"timeout_s": 0.0}], ids=str
)
def test_number_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}="):
        _aot.compile_hlo(b"", V5E, **wrong)


@needs_libtpu
def test_topology_that_the_generation_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"target 'tpu:v5e:2x3'.*not divisible"):
        _aot.compile_hlo(b"", "tpu:v5e:2x3")
