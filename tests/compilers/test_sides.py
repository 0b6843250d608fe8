"""docs/capabilities.md, side by side: every op on every target, and what is emitted now."""

import pytest

pytest.importorskip("google.protobuf", reason="pip install protobuf")

from torch_xla_cc._aot import CompilerMissing
from torch_xla_cc._aot.target import find_library, parse_target
from torch_xla_cc.capabilities import __main__ as command
from torch_xla_cc.capabilities import _grid, _measured, _sides

MEASURED = _measured.load()
COMPARED = {str(device): device for device in _grid.DEVICES if _sides.is_compared(device)}
CELLS = {cell.op: cell for cell in _sides.wanted()}


def test_targets_that_are_compared():
    targets = {device.name for device in _grid.DEVICES}
    assert {device.name for device in COMPARED.values()} == targets and len(targets) == 9
    assert set(MEASURED.sides) == set(COMPARED)


@pytest.mark.parametrize("name", COMPARED)
def test_every_op_is_there_with_all_its_figures(name):
    sides = {side["op"]: side for side in MEASURED.sides[name]}
    assert set(sides) == set(CELLS) == {*_grid.OPS} - {"send"}  # which is compared with its recv
    for op, side in sides.items():
        for rule in _sides.RULES:
            found = side[rule]
            assert found["wire"] > 0 and found["emitted"]
            if "failed" not in found:
                assert found["instructions"] and found["accessed"] > 0 <= found["temporary"]
        assert "failed" not in side["fallback"], op


@pytest.mark.parametrize("name", COMPARED)
def test_they_are_of_what_is_emitted_now(name):
    for side in MEASURED.sides[name]:
        for rule in _sides.RULES:
            opcodes, wire, _ = _sides.emitted(CELLS[side["op"]], COMPARED[name], rule)
            assert (side[rule]["emitted"], side[rule]["wire"]) == (opcodes, wire), (
                f"{side['op']}, {rule}: python -m torch_xla_cc.capabilities probe --sides-again"
            )


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("cpu/4", "all_to_all"),
        ("cpu/4", "uneven_all_gather"),
        ("tpu:v5e/8", "collective_broadcast"),
        ("tpu:v5e/8", "uneven_all_to_all"),
        ("gpu:h100/8", "send"),
        ("gpu:h100/8", "uneven_all_gather"),
    ],
)
def test_the_compilers_still_say_so(name, op):
    device, cell = COMPARED[name], CELLS["recv" if op == "send" else op]
    if device.name != "cpu":
        try:
            find_library(parse_target(device.target))
        except CompilerMissing as missing:
            pytest.skip(str(missing))
    (known,) = (side for side in MEASURED.sides[name] if side["op"] == cell.op)
    assert _sides.compare(cell, device) == known


def test_comparing_again_probes_nothing_and_keeps_what_was_probed(tmp_path, monkeypatch):
    device = COMPARED["cpu/4"]
    out = tmp_path / "measured.json"
    _measured.save(MEASURED, out)
    monkeypatch.setattr(_measured, "installed", MEASURED.versions.get)
    monkeypatch.setattr(
        _sides,
        "compare",
        lambda cell, device: {"op": cell.op, "form": cell.form, "new": str(device)},
    )
    command.probe([device], tmp_path / "state.jsonl", out, 1, again=True)
    found = _measured.load(out)
    assert (found.date, found.cells) == (MEASURED.date, MEASURED.cells)
    assert {side["new"] for side in found.sides.pop("cpu/4")} == {"cpu/4"}
    assert found.sides == {name: MEASURED.sides[name] for name in found.sides}

    monkeypatch.setattr(_measured, "installed", lambda package: "another")
    with pytest.raises(SystemExit, match="other compilers"):
        command.probe([device], tmp_path / "state.jsonl", out, 1, again=True)
    assert _measured.load(out).cells == MEASURED.cells
