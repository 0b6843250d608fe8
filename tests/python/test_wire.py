"""The bytes of lowering/: protobuf's own, as lowering/hlo/hlo.proto says, and good for XLA.

Nothing here runs on a device: `_C.lower_<op>` gives the module that a call would become.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from jax.interpreters import mlir
from jaxlib import _jax, xla_client
from jaxlib.mlir import ir

from torch_xla_cc import _C, lowering_for
from torch_xla_cc._hlo import protobuf as _hlo_pb

ROOT = Path(__file__).parents[2]
SCHEMA = (ROOT / "lowering/hlo/hlo.proto").read_text()
HloModuleProto = _hlo_pb.load(SCHEMA)["HloModuleProto"]

TARGETS = {
    "cpu": ("cpu", 4),
    "tpu": ("tpu:v5e:2x4", 8),
    "gpu": ("gpu:h100x8", 8),
    "spmd": ("spmd:gpu:h100x8", 8),
}
NUMBERS = {**_hlo_pb.enums(SCHEMA)["PrimitiveType"]}
NO_ARRAYS = {"PRIMITIVE_TYPE_INVALID", "TUPLE", "TOKEN"}
TYPES = [number for name, number in NUMBERS.items() if name not in NO_ARRAYS]
F32, BF16, S32, PRED = (NUMBERS[name] for name in ("F32", "BF16", "S32", "PRED"))
# What no program for a TPU takes (constraint C1).
REFUSED_BY_TPU = {NUMBERS["C128"]}
OPS = [
    "all_gather",
    "all_reduce",
    "reduce_scatter",
    "collective_permute",
    "all_to_all",
    "collective_broadcast",
    "send",
    "recv",
    "uneven_all_gather",
    "uneven_reduce_scatter",
    "uneven_all_to_all",
]


class Case(NamedTuple):
    target: str
    op: str
    operands: list
    fields: tuple

    def lower(self):
        with lowering_for(*TARGETS[self.target]):
            return getattr(_C, f"lower_{self.op}")(self.operands, *self.fields)


def blocks(world, size):
    return [list(range(i, i + size)) for i in range(0, world, size)]


def strided(world, size):
    return [list(range(i, world, world // size)) for i in range(world // size)]


def sizes_of(groups, world):
    """Uneven sizes of which each group has as many as the world: its first member has the rest."""
    members = {rank: group for group in groups or [list(range(world))] for rank in group}
    sizes = [int(rank in members) for rank in range(world)]
    for group in members.values():
        sizes[group[0]] = world - len(group) + 1
    return sizes


def exchange_of(groups, world):
    members = {rank: group for group in groups or [list(range(world))] for rank in group}
    sizes = sizes_of(groups, world)
    return [
        [size if j in members.get(i, []) else 0 for j, size in enumerate(sizes)]
        for i in range(world)
    ]


def uneven_fields(op, world):
    unequal = [list(range(world - 1)), [world - 1]]
    forms = [None, blocks(world, 2), strided(world, 2), unequal, [[1, 0]], [[3, 0, 2, 1]]]
    if op == "uneven_all_to_all":
        return [(exchange_of(groups, world), groups) for groups in forms]
    sizes = [(sizes_of(groups, world), groups) for groups in forms]
    if op == "uneven_all_gather":
        whole = [world, *[1] * (world - 1)]
        return [([n if size else 0 for n, size in zip(whole, s, strict=True)], g) for s, g in sizes
                if s[0]]  # fmt: skip
    return [("average", 0.5, 1.0, *rest) for rest in sizes]


def fields_of(op, world):
    """Attributes in all forms that the op has."""
    if op.startswith("uneven"):
        return uneven_fields(op, world)
    mirrored = [[world - 1 - rank, rank] for rank in range(world // 2)]
    uniform = [None, blocks(world, 2), strided(world, 2), mirrored]
    unequal = [list(range(world - 2)), [world - 2, world - 1]]
    ring = [[rank, (rank + 1) % world] for rank in range(world)]
    plain = ("sum", 1.0, 1.0)
    reductions = [plain, ("average", 0.5, 1.0), ("premultiplied_sum", 1.0, 0.1)]
    return {
        "all_gather": [(dim, groups) for dim in (0, 1) for groups in uniform],
        "all_reduce": [(*reduction, None) for reduction in reductions]
        + [(*plain, groups) for groups in uniform]
        + [(kind, 1.0, 1.0, unequal) for kind in ("average", "max")],
        "reduce_scatter": [(*reduction, 0, None, None) for reduction in reductions]
        + [(*plain, 1, None, groups) for groups in uniform],
        "collective_permute": [(ring,), (ring[:-1],), ([],)],
        "all_to_all": [(*dims, None, g) for dims in ((0, 0), (0, 2), (1, 0)) for g in uniform],
        "collective_broadcast": [(world - 1, groups) for groups in uniform],
        "send": [(3, ring[:-1]), (2**31 - 1, ring[:1])],
        "recv": [(3, ring[:-1]), (2**31 - 1, ring[:1])],
    }[op]


def refused(target):
    """Element types that a target cannot have at all."""
    return REFUSED_BY_TPU if target == "tpu" else set()


def cases(target, op):
    _, world = TARGETS[target]
    shape = [world, 2 * world, 3]
    found = [
        Case(target, op, operands, fields)
        for fields in fields_of(op, world)
        for operands in (
            [(F32, shape)],
            [(F32, shape), (BF16, shape), (F32, shape), (F32, [*shape[:2], 0])],
        )
    ]
    # Every type, with attributes that all types have.
    fields = fields_of(op, world)[0]
    if "average" in fields:
        fields = ("sum", 1.0, *fields[2:])
    found += [Case(target, op, [(k, shape)], fields) for k in TYPES if k not in refused(target)]
    uncovered = [[list(range(world - 1)), [world - 1]], [[0, 1]], [[1, 0], [2, 3]]]
    if op == "all_gather":
        found.append(Case(target, op, [(F32, [])], (0, None)))
        found += [Case(target, op, [(BF16, shape)], (1, groups)) for groups in uncovered]
    if op in ("reduce_scatter", "all_to_all"):
        rest = {"reduce_scatter": ("min", 1.0, 1.0, 0, None), "all_to_all": (0, 1, None)}[op]
        cut = [2 * (world - 1), 3]
        found += [Case(target, op, [(S32, cut)], (*rest, groups)) for groups in uncovered]
        # So much that steps between members are cheaper than one over all ranks.
        found.append(Case(target, op, [(S32, [(world - 1) << 22, 3])], (*rest, uncovered[0])))
    if op in ("all_reduce", "reduce_scatter"):
        rest = fields_of(op, world)[0][1:]
        found.append(Case(target, op, [(NUMBERS["F64"], shape)], ("average", 0.5, *rest[1:])))
        found += [
            Case(target, op, [(kind, shape)], (reduce, *rest))
            for kind in (PRED, S32)
            for reduce in ("product", "min", "max", "and", "or", "xor")
        ]
    return found


@pytest.fixture(params=[(t, op) for t in TARGETS for op in OPS], ids="-".join)
def lowered(request):
    """All modules of one op on one target."""
    modules = {str(case): case.lower()["bytes"] for case in cases(*request.param)}
    assert len(modules) >= 19
    return modules


def walk(message):
    """A message and all messages in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for inner in value if hasattr(value, "add") else [value]:
            yield from walk(inner)


def test_protobuf_writes_the_same_bytes(lowered):
    for case, written in lowered.items():
        module = HloModuleProto.FromString(written)
        assert module.SerializeToString(deterministic=True) == written, case
        assert not any(len(UnknownFieldSet(message)) for message in walk(module)), case


def test_jaxlib_reads_prints_and_reads_back(lowered):
    for case, written in lowered.items():
        text = _jax.HloModule.from_serialized_hlo_module_proto(written).to_string()
        assert _jax.hlo_module_from_text(text).to_string() == text, case


def stablehlo_lacks(written):
    """Several operands of a reduce-scatter, and the ragged all-to-all: HLO has them."""
    return any(
        (instruction.opcode == "reduce-scatter" and len(instruction.operand_ids) > 1)
        or instruction.opcode == "ragged-all-to-all"
        for computation in HloModuleProto.FromString(written).computations
        for instruction in computation.instructions
    )


def test_stablehlo_verifies(lowered):
    """XLA's own verifier runs when it compiles; this one checks the same shapes and attributes."""
    with mlir.make_ir_context():
        for case, written in lowered.items():
            if stablehlo_lacks(written):
                continue
            computation = xla_client.XlaComputation(written)
            module = ir.Module.parse(_jax.mlir.xla_computation_to_mlir_module(computation))
            assert module.operation.verify(), case


@pytest.mark.parametrize("op", OPS)
def test_what_the_tpu_refuses_is_refused(op):
    _, world = TARGETS["tpu"]
    fields = fields_of(op, world)[0]
    for kind in refused("tpu"):
        with pytest.raises(ValueError, match=r"\(C1\)"):
            Case("tpu", op, [(kind, [world, 2 * world, 3])], fields).lower()


def test_stablehlo_notices():
    written = Case("tpu", "all_gather", [(F32, [8, 8])], (0, None)).lower()["bytes"]
    module = HloModuleProto.FromString(written)
    module.computations[0].instructions[1].shape.dimensions[0] = 5
    computation = xla_client.XlaComputation(module.SerializeToString())
    with mlir.make_ir_context(), pytest.raises(ir.MLIRError, match="all_gather"):
        ir.Module.parse(_jax.mlir.xla_computation_to_mlir_module(computation))


def test_every_field_of_the_schema_is_emitted():
    used = set()
    _C.set_debug(True)  # for the call site
    try:
        modules = [case.lower()["bytes"] for t in TARGETS for op in OPS for case in cases(t, op)]
    finally:
        _C.set_debug(False)
    for written in modules:
        for message in walk(HloModuleProto.FromString(written)):
            used |= {(message.DESCRIPTOR.name, field.name) for field, _ in message.ListFields()}
    declared = _hlo_pb.messages(SCHEMA)
    assert used == {(name, field.name) for name, fields in declared.items() for field in fields}


@pytest.mark.parametrize("message", _hlo_pb.messages(SCHEMA))
def test_schema_agrees_with_what_python_reads(message):
    assert set(_hlo_pb.messages(SCHEMA)[message]) <= set(_hlo_pb.messages()[message])


def test_enum_agrees_with_what_python_reads():
    known = _hlo_pb.enums()["PrimitiveType"]
    assert all(known[name] == number for name, number in NUMBERS.items())


@pytest.mark.parametrize("number", range(-1, 40))
def test_element_types_are_those_of_the_schema(number):
    case = Case("gpu", "all_gather", [(number, [8])], (0, None))
    if number in TYPES:
        assert case.lower()["results"][0].endswith("[64]")
    else:
        with pytest.raises(ValueError, match="no element type"):
            case.lower()


def digests(backwards=False):
    _C.clear_cache()
    found = [case for target in TARGETS for op in OPS for case in cases(target, op)]
    out = {}
    for case in reversed(found) if backwards else found:
        described = case.lower()
        digest = hashlib.sha256(described["bytes"]).hexdigest()
        out[str(case)] = [digest, described["fingerprint"], described["text"]]
    return out


def test_bytes_are_the_same_again_and_in_another_process():
    first = digests()
    assert digests(backwards=True) == first
    script = "import json, test_wire; print(json.dumps(test_wire.digests()))"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "77",
        "PYTHONPATH": f"{Path(__file__).parent}:{ROOT / 'python'}",
    }
    child = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout.splitlines()[-1]) == first
    fingerprints = {digest: fingerprint for digest, fingerprint, _ in first.values()}
    assert len(set(fingerprints.values())) == len(fingerprints)


# What may differ between world sizes of 8 and 4096, in bytes: varints and digits of dimensions, ids
# and counts. A list of 4096 ranks takes 8000 and more.
SLACK = 32
# Names stand in every instruction: longer groups than some 100 characters are told shorter.
LONGEST_NAME = 220


@pytest.mark.parametrize("groups", [None, blocks, strided], ids=["world", "blocks", "strided"])
@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("all_gather", (0,)),
        ("all_reduce", ("sum", 1.0, 1.0)),
        ("reduce_scatter", ("sum", 1.0, 1.0, 0, None)),
        ("all_to_all", (0, 0, None)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_size_of_a_module_does_not_grow_with_the_world(op, fields, groups):
    sizes = {}
    for world in (8, 16, 64, 512, 4096):
        with lowering_for("tpu:v6e", world):  # v5e exchanges in two stages from 128 on
            lists = groups and groups(world, 8)
            described = getattr(_C, f"lower_{op}")([(S32, [4096, 8])], *fields, lists)
        assert described["rule"] == "native"
        module = HloModuleProto.FromString(described["bytes"])
        for instruction in module.computations[-1].instructions:
            assert instruction.metadata.op_name.startswith(f"{described['name']} native")
            assert len(described["name"]) <= LONGEST_NAME
        for computation in module.computations:
            for instruction in computation.instructions:
                instruction.metadata.ClearField("op_name")
        sizes[world] = module.ByteSize()
    assert max(sizes.values()) - min(sizes.values()) <= SLACK, sizes


SOURCES = [path for kind in ("*.cc", "*.h") for path in sorted((ROOT / "lowering").rglob(kind))]
LABEL = re.compile(r'\{"([A-Z]\d)"')


def test_every_refusal_has_a_case():
    """As many rows in the tables of tests/lowering as places in lowering/ that refuse, by label.

    Those tests check the label of each row. This one is here since Bazel shows them no sources.
    """

    def count(paths):
        labels = [label for path in paths for label in LABEL.findall(path.read_text())]
        return {label: labels.count(label) for label in labels}

    refusals = count(SOURCES)
    tested = count((ROOT / "tests/lowering").glob("*_test.cc"))
    assert {"O1", "G1", "R1", "P1", "S1", "B1", "T1", "C1"} <= set(refusals)
    assert {label: n for label, n in refusals.items() if tested.get(label, 0) < n} == {}
    assert set(tested) == set(refusals)
