"""python -m torch_xla_cc.capabilities: what it is told, and the file that a run goes on from."""

import pytest

pytest.importorskip("google.protobuf", reason="pip install protobuf")

from torch_xla_cc.capabilities import __main__ as command
from torch_xla_cc.capabilities import _grid
from torch_xla_cc.capabilities._results import Outcome, State

DEVICE = _grid.DEVICES[0]
ONE, OTHER = list(_grid.cells(DEVICE))[:2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--targets"], "argument --targets: expected at least one argument"),
        (["--targets", "tpu:v9:2x2/4"], "argument --targets: invalid choice: 'tpu:v9:2x2/4'"),
        (["--jobs", "0"], "argument --jobs: 0, but it must be a number of compilers, from 1"),
        (["--jobs", "few"], "argument --jobs: invalid _jobs value: 'few'"),
        (["--state", "{garbage}"], "--state {garbage}: JSONDecodeError"),
        (
            ["--state", "{note}"],
            "--state {note}: ValueError: its last line is no probe: 'one line'",
        ),
        (["--out", "{garbage}"], "--out {garbage}: JSONDecodeError"),
        (["--out", "{list}"], "--out {list}: TypeError"),
        (["--state", "{list}"], "--state {list}: TypeError"),
        (["--state", "x", "--out", "./x"], "--state and --out are both x. Name two files"),
        (["--state", "{folder}"], "--state {folder}: IsADirectoryError"),
        (["--out", "{garbage}/x.json"], "--out {garbage}/x.json: "),
    ],
    ids=str,
)
def test_before_anything_is_compiled(tmp_path, capsys, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)  # where the other file would be
    monkeypatch.setattr(command, "probe", lambda *_: pytest.fail("it begins"))
    paths = {name: str(tmp_path / name) for name in ("garbage", "list", "folder", "note")}
    (tmp_path / "garbage").write_text("no line of JSON\n")
    (tmp_path / "list").write_text("[1]\n")
    (tmp_path / "note").write_text("one line")
    (tmp_path / "folder").mkdir()
    with pytest.raises(SystemExit) as ended:
        command.main(["probe", *(one.format(**paths) for one in arguments)])
    assert ended.value.code == 2 and says.format(**paths) in capsys.readouterr().err


def test_a_run_goes_on_from_one_that_was_ended_while_it_wrote(tmp_path):
    path, found = tmp_path / "state", Outcome("kept", "")
    State(path).add(DEVICE, [(ONE, found)])
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(whole[: len(whole) // 2])
    again = State(path)
    assert again.done(DEVICE) == {ONE: found}
    again.add(DEVICE, [(OTHER, found)])
    again.add(DEVICE, [])
    assert State(path).done(DEVICE) == {ONE: found, OTHER: found}
