"""The capability table says what the compilers do: a sample is probed again."""

import functools
import importlib.util
import re
import subprocess
import sys
import zlib
from itertools import product
from pathlib import Path

import beside
import pytest
import tomllib

pytest.importorskip("google.protobuf", reason="pip install protobuf")

from torch_xla_cc._aot import CompilerMissing
from torch_xla_cc._aot.target import find_library, parse_target
from torch_xla_cc.capabilities import (
    _ahead,
    _emit,
    _expected,
    _grid,
    _measured,
    _pod,
    _results,
    _table,
    _threads,
)
from torch_xla_cc.capabilities._grid import Cell
from torch_xla_cc.capabilities._outcome import NATIVE, TIMEOUT, Outcome
from torch_xla_cc.capabilities._results import normalised

ROOT = Path(__file__).parents[2]
MEASURED = _measured.load()
DEVICES = {str(device): device for device in _grid.DEVICES}

# Those on which much depends, on every device.
INTERESTING = [
    Cell("all_reduce", "f32", "sum", "unequal", "one"),
    Cell("all_reduce", "s32", "xor", "world", "one"),
    Cell("all_reduce", "f8e5m2", "sum", "world", "one"),
    Cell("all_reduce", "s64", "max", "world", "one"),
    Cell("reduce_scatter", "f32", "sum", "world", "several"),
    Cell("reduce_scatter", "bf16", "sum", "world", "several"),
    Cell("collective_broadcast", "f32", "-", "world", "one"),
    Cell("recv", "f32", "-", "chain", "one"),
    Cell("recv", "f32", "-", "ring", "one"),
]


def sample(name: str, size: int) -> list[Cell]:
    """The same cells every time, from all over the table, and the interesting ones."""
    cells = MEASURED.cells[name]
    # An all_to_all of many v5e chips compiles for most of a minute: on a busy machine for more.
    slow = ("all_to_all",) if name in ("tpu:v5e/128", "tpu:v5e/256") else ()
    quick = [
        cell
        for cell, outcome in cells.items()
        if outcome.result != TIMEOUT
        and cell.op not in slow
        and not outcome.says.startswith(_threads.NEVER_MET)
    ]
    chosen = sorted(quick, key=lambda cell: zlib.crc32(str(cell).encode()))[:size]
    return [cell for cell in dict.fromkeys([*INTERESTING, *chosen]) if cell in quick]


def differences(name: str, probes) -> list[str]:
    """What came out otherwise than measured.json says; compilers word their refusals freely."""
    known = MEASURED.cells[name]
    return [
        f"{cell}: {outcome}, but measured.json has {known[cell]}"
        for cell, outcome in probes
        if (outcome.result, outcome.becomes) != (known[cell].result, known[cell].becomes)
    ]


@pytest.mark.parametrize("name", [name for name in DEVICES if name[:3] not in ("cpu", "pod")])
def test_sample_is_as_the_table_says(name):
    device = DEVICES[name]
    try:
        find_library(parse_target(device.target))
    except CompilerMissing as missing:
        pytest.skip(str(missing))
    some = sample(name, 24 if device.world <= 8 else 6)
    assert len(some) >= 6
    probes = [probe for found in _ahead.probe(device, some) for probe in found]
    assert {cell for cell, _ in probes} == set(some)
    assert differences(name, probes) == []


def test_sample_of_the_pod():
    some = sample("pod/4", 30)
    probes = [probe for found in _pod.probe(DEVICES["pod/4"], some) for probe in found]
    assert {cell for cell, _ in probes} == set(some)
    assert differences("pod/4", probes) == []


def probed(cells):
    return [probe for found in _threads.probe(DEVICES["cpu/4"], cells) for probe in found]


@functools.cache
def sample_of_cpu():
    some = sample("cpu/4", 20)
    some.sort(key=lambda cell: (cell.form == "partial", cell.op, cell.form, cell.number))
    return some


WITHOUT_CHANNEL = [
    Cell("all_to_all", "f32", "-", "world", "one"),
    Cell("all_to_all", "s8", "-", "world", "one"),  # is not tried
    Cell("all_gather", "f32", "-", "world", "one"),
]
# What does not work on CPU threads waits until it is given up.
ON_CPU = beside.Runs(
    sample=lambda: probed(sample_of_cpu()), without_channel=lambda: probed(WITHOUT_CHANNEL)
)


@pytest.fixture(autouse=True, scope="module")
def _start_on_cpu():
    ON_CPU.start()


def test_sample_is_as_the_table_says_on_cpu():
    probes = ON_CPU["sample"]
    assert [cell for cell, _ in probes] == sample_of_cpu()
    assert differences("cpu/4", probes) == []


def test_ranks_of_different_programs_never_meet_without_a_channel():
    """It ends the process, and costs this one cell."""
    probes = ON_CPU["without_channel"]
    assert differences("cpu/4", probes) == []
    assert [outcome.result for _, outcome in probes] == ["crashed", "crashed", NATIVE]


def test_generated_files_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/capabilities"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_versions_are_those_that_are_pinned():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [settings["dependencies"], *settings["optional-dependencies"].values()]
    pinned = dict(line.split("==") for some in lists for line in some if "==" in line)
    for package in _measured.PACKAGES:
        assert MEASURED.versions[package] == pinned[package], f"{package}: probe again"


def test_everything_was_measured():
    for name, device in DEVICES.items():
        missing = set(_grid.cells(device)) - set(MEASURED.cells[name])
        assert missing == set(), (name, len(missing))


ROW = re.compile(r'^ROW(?:_OF_THREADS)?\("([\w:]+)", k(\w+), (.*), (\d+), "(.*)"\)$')


def read_set(text: str, everything) -> set[str]:
    names = {name.replace("_", ""): name for name in everything}
    return set(
        everything if text == "kAny" else (names[n.lower()] for n in re.findall(r"\((\w+)\)", text))
    )


def read_table() -> list[tuple]:
    rows = []
    for line in (ROOT / "lowering/capability/measured.inc").read_text().splitlines():
        if line.startswith("//"):
            continue
        device, op, sets, least, _ = ROW.match(line).groups()
        types, kinds, forms, counts = sets.split(", ")
        rows.append(
            (
                device,
                {"parameter": "parameter", **{o.replace("_", ""): o for o in _grid.OPS}}[
                    op.lower()
                ],
                read_set(types, _grid.TYPES),
                read_set(kinds, _grid.KINDS) | {"-"},
                read_set(forms, [*_grid.GROUP_FORMS, *_grid.PAIR_FORMS]) | {"-"},
                read_set(counts, _grid.COUNTS),
                int(least),
            )
        )
    return rows


def test_table_holds_what_was_measured():
    """Each measured cell against the rows, read as C++ reads them."""
    table = read_table()
    for name, cells in MEASURED.cells.items():
        device, world = DEVICES[name].name, DEVICES[name].world
        rows = [row[1:] for row in table if row[0] == device]
        for cell in cells:
            if ":" in cell.form:
                continue
            held = any(
                (op == cell.op or op == "parameter")
                and cell.type in types
                and cell.kind in kinds
                and cell.form in forms
                and cell.number in counts
                and world >= least
                for op, types, kinds, forms, counts, least in rows
            )
            if _table.outcome_in(MEASURED, device, world, cell).result != NATIVE:
                assert held, (name, cell)
            elif held:
                # Only because it fails with fewer ranks.
                smaller = [w for w in MEASURED.worlds(device) if w < world]
                assert any(
                    MEASURED.cells[f"{device}/{w}"][cell].result != NATIVE for w in smaller
                ), (name, cell)


def test_boxes_hold_the_points_and_no_others():
    cells = [cell for cell in _grid.cells(DEVICES["tpu:v5e/8"]) if cell.op == "all_reduce"]
    points = {(c.form, c.number, c.kind, c.type) for c in cells if zlib.crc32(str(c).encode()) % 3}
    boxes = _measured.boxes(points)
    held = [point for box in boxes for point in product(*box)]
    real = [point for point in held if point[2] in _grid.kinds_of(point[3])]
    assert sorted(real) == sorted(points)  # each once


def test_saved_is_what_is_loaded(tmp_path):
    _measured.save(MEASURED, tmp_path / "measured.json")
    assert (tmp_path / "measured.json").read_text() == _measured.PATH.read_text()


def test_run_goes_on_from_its_state(tmp_path):
    path = tmp_path / "state.jsonl"
    device, cell = DEVICES["tpu:v5e/8"], INTERESTING[0]
    _results.State(path).add(device, [_results.Probe(cell, Outcome("crashed", says="no"))])
    with path.open("a") as file:
        file.write('{"device": "tpu:v5e/8", "cell": "all_re')  # ended while it wrote
    assert _results.State(path).done(device) == {cell: Outcome("crashed", "", "no")}


def device_of(name: str, failing: dict[int, bool]) -> _measured.Measured:
    cell = INTERESTING[0]
    cells = {
        f"{name}/{world}": {cell: Outcome("crashed" if fails else NATIVE)}
        for world, fails in failing.items()
    }
    return _measured.Measured({}, "", cells)


@pytest.mark.parametrize(
    ("failing", "least"),
    [
        ({8: False, 64: False, 256: False}, None),
        ({8: True, 64: True, 256: True}, 0),
        ({8: False, 64: True, 256: True}, 9),
        ({8: False, 64: False, 256: True}, 65),
        ({8: False, 64: True, 256: False}, 9),
        ({8: True, 64: False, 256: False}, 0),
    ],
)
def test_fewest_ranks_of_a_row(failing, least):
    measured = device_of("tpu:v5e", failing)
    found = _table.failing_from(measured, "tpu:v5e", INTERESTING[0])
    assert (found and found[0]) == least


def test_type_that_was_not_measured_is_as_its_stand_in():
    cell = Cell("all_gather", "s16", "-", "world", "one")
    cells = {
        "tpu:v5e/8": {cell: Outcome(NATIVE)},
        "tpu:v5e/64": {cell._replace(type="s8"): Outcome("crashed")},
    }
    measured = _measured.Measured({}, "", cells)
    assert _table.failing_from(measured, "tpu:v5e", cell) == (9, Outcome("crashed"))


def test_messages_are_the_same_in_every_run():
    line = "during context [x]: RET_CHECK (a/b/ba16c7433/c.cc:23) %all-reduce.12 = f32[4]{0:T(8)}"
    assert normalised(f"\n{line}\nmore") == (
        "during context [x]: RET_CHECK c.cc:23) %all-reduce = f32[4]"
    )


@pytest.mark.parametrize("world", [4, 8, 64, 128, 256])
@pytest.mark.parametrize("form", _grid.GROUP_FORMS)
def test_groups_are_of_their_form(form, world):
    lists = _grid.groups(form, world) or [list(range(world))]
    members = [rank for group in lists for rank in group]
    assert len(set(members)) == len(members)
    assert (set(members) == set(range(world))) == (form != "partial")
    assert (len({len(group) for group in lists}) > 1) == (form == "unequal")
    assert all(group == sorted(group) for group in lists) == (form != "scrambled")
    assert all(2 * world % len(group) == 0 for group in lists)


def test_send_and_recv_are_one_program():
    device = DEVICES["gpu:h100/8"]
    cell = Cell("send", "f32", "-", "chain", "one")
    code = _emit.both_ends(cell, device, "native", [[4, 8]])
    from torch_xla_cc._hlo import protobuf as _hlo_pb

    (entry,) = _hlo_pb.HloModuleProto.FromString(code).computations
    opcodes = [made.opcode for made in entry.instructions]
    assert {"send", "send-done", "recv", "recv-done"} <= set(opcodes)
    assert len({made.id for made in entry.instructions}) == len(opcodes)
    numbers = [made.parameter_number for made in entry.instructions if made.opcode == "parameter"]
    assert numbers == [0, 1]


def test_what_the_host_expects_is_what_the_words_say():
    """A few results that can be told at once; the sample compares the rest with XLA:CPU."""
    cell = Cell("all_gather", "u8", "-", "unequal", "one")
    mine, beside = (_expected.expected(cell, rank, 4)[0] for rank in (0, 1))
    own = _expected.operands(cell, 0, 4)[0]
    assert mine[:8].equal(own) and not mine[8:].any() and mine.shape[0] == 16
    assert beside[8:].equal(_expected.operands(cell, 2, 4)[0])
    alone = Cell("all_reduce", "s32", "sum", "partial", "one")
    assert _expected.same(
        alone, _expected.operands(alone, 3, 4)[0], _expected.expected(alone, 3, 4)[0]
    )


def test_compilers_of_the_table_are_the_installed_ones():
    for package in ("libtpu", "jax-cuda12-pjrt"):
        version = _measured.installed(package)
        if version is None:
            pytest.skip(f"{package} is not installed: pip install 'torch_xla_cc[aot,aot-gpu]'")
        assert version == MEASURED.versions[package]
    assert importlib.util.find_spec("torch_xla")


def test_run_on_some_devices_keeps_the_others():
    cell = INTERESTING[0]
    versions = {"libtpu": "1"}
    some = _measured.Measured(versions, "", {"tpu:v5e/8": {cell: Outcome(NATIVE)}})
    old = {"tpu:v5e/8": {cell: Outcome("crashed")}, "cpu/4": {cell: Outcome(NATIVE)}}
    some.keep(_measured.Measured(versions, "", old))
    assert some.cells["tpu:v5e/8"] == {cell: Outcome(NATIVE)}
    assert some.cells["cpu/4"] == {cell: Outcome(NATIVE)}
    some.keep(_measured.Measured({"libtpu": "0"}, "", {"tpu:v4/8": {}}))
    assert "tpu:v4/8" not in some.cells
