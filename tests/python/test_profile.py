"""What `txcc profile` reads from traces: made by hand, and of ranks that are threads."""

import gzip
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch_xla
import worlds
from click.testing import CliRunner

from torch_xla_cc import xla_model as xm
from torch_xla_cc._hlo import protobuf
from torch_xla_cc._inspect import report as inspected
from torch_xla_cc._profile import meetings, ops, report, text, xplane
from txcc import cli

ROOT = Path(__file__).parents[2]
MS = 1_000_000  # nanoseconds


def program(opcode="all-reduce", pairs=(), ranks=0):
    """A collective of f32[1024], with what it is beside; `ranks` is what it was compiled for."""
    module = protobuf.HloModuleProtoWithConfig()
    hlo = module.hlo_module
    hlo.name, hlo.entry_computation_name, hlo.entry_computation_id = "step", "main", 1
    if ranks:
        hlo.device_assignment.replica_count, hlo.device_assignment.computation_count = ranks, 1
    main = hlo.computations.add(name="main", id=1, root_id=3)
    for number, (name, kind, operands) in enumerate(
        [("x", "parameter", []), ("work", "add", [1, 1]), ("meet", opcode, [2])], 1
    ):
        one = main.instructions.add(name=name, opcode=kind, id=number, operand_ids=operands)
        one.shape.element_type = protobuf.PrimitiveType.F32
        one.shape.dimensions.append(1024)
    for source, target in pairs:
        one.source_target_pairs.add(source=source, target=target)
    return module.SerializeToString()


def write(folder, rank, events, hlo, start_ms=0, into=None, plane="/device:CUSTOM:POD:{}"):
    """A trace as a rank of a pod writes it: events are (instruction, begin and end in ms)."""
    space = xplane.XSpace()
    plane = space.planes.add(name=plane.format(rank))
    plane.stat_metadata[1].name, plane.stat_metadata[2].name = "hlo_op", "program_id"
    line = plane.lines.add(name="python", timestamp_ns=5 * MS)
    for name, begin, end in events:
        plane.event_metadata[1].name = "anything"
        event = line.events.add(
            metadata_id=1, offset_ps=round(begin * 1e9), duration_ps=round((end - begin) * 1e9)
        )
        event.stats.add(metadata_id=1, str_value=name)
        event.stats.add(metadata_id=2, uint64_value=7)
    programs = space.planes.add(name="/host:metadata")
    programs.event_metadata[7].name = "step(7)"
    programs.event_metadata[7].stats.add(metadata_id=1, bytes_value=hlo)
    task = space.planes.add(name="Task Environment")
    for number, (name, value) in enumerate(
        [("profile_start_time", 100 + start_ms), ("profile_stop_time", 200 + start_ms)], 1
    ):
        task.stat_metadata[number].name = name
        task.stats.add(metadata_id=number, uint64_value=value * MS)
    path = folder / (into or f"rank{rank}") / "plugins/profile" / f"run{start_ms}" / "vm.xplane.pb"
    path.parent.mkdir(parents=True)
    path.write_bytes(space.SerializeToString())


def found(folder):
    return report.profile(str(folder), xplane.spaces(folder))


def test_who_waited_for_whom(tmp_path):
    late = [("work", 0, 3), ("meet", 3, 5), ("work", 5, 6), ("meet", 8, 9)]
    write(tmp_path, 0, [("meet", 1, 5), ("work", 5, 6), ("meet", 6, 9)], program())
    write(tmp_path, 1, late, program())
    made = found(tmp_path)
    (row,) = made.rows
    assert (row.name, row.runs, row.last) == ("meet", 2, {1: 2})
    assert (row.ns, row.waiting_ns) == (2.5 * MS, 1 * MS)  # waits of 2 and 2 ms, on average of four
    assert row.predicted.after == "all-reduce" and row.predicted.wire_bytes == 4096
    assert row.bytes_per_s == pytest.approx(4096 / 1.5e-3)
    first, second = made.ranks
    assert (first.ns, first.collectives_ns, first.waiting_ns, first.last) == (
        8 * MS,
        7 * MS,
        4 * MS,
        0,
    )
    assert (second.kept_waiting_ns, second.last, second.waiting_ns) == (4 * MS, 2, 0)
    said = "\n".join(text.first_lines(made))
    assert (
        "2 ranks, 2 runs of collectives" in said
        and "rank 1 kept the others waiting longest: 4.000" in said
    )


def test_what_computes_meanwhile(tmp_path):
    write(
        tmp_path, 0, [("meet", 0, 4), ("work", 1, 2), ("work", 1.5, 3), ("work", 6, 7)], program()
    )
    write(tmp_path, 1, [("meet", 0, 4)], program())
    assert found(tmp_path).rows[0].beside_ns == 1 * MS  # 2 of 4 ms on one rank of two


def test_a_trace_that_begins_later(tmp_path):
    """Of what one trace lacks, the others' part is left out, and counted."""
    write(tmp_path, 0, [("meet", 1, 2), ("meet", 3, 5), ("meet", 6, 7)], program())
    write(tmp_path, 1, [("meet", 4, 5), ("meet", 6, 7)], program())
    made = found(tmp_path)
    assert (made.rows[0].runs, made.alone, made.rows[0].last) == (2, 1, {1: 1, 0: 1})
    said = "\n".join(text.first_lines(made))
    assert "1 runs of collectives that not all of their ranks have a trace of" in said


def test_traces_of_different_times(tmp_path):
    """There is nothing to say of waiting, but something of time."""
    write(tmp_path, 0, [("meet", 1, 2), ("meet", 3, 5)], program())
    write(tmp_path, 1, [("meet", 11, 12)], program())
    made = found(tmp_path)
    (row,) = made.rows
    assert (row.runs, row.waiting_ns, row.last, made.alone) == (2, None, {}, 3)
    assert row.ns == pytest.approx(4 / 3 * MS) and row.bytes_per_s > 0
    assert any("?" in cell for column in text.tables(made)[0].columns for cell in column.cells)


def test_ranks_without_a_trace(tmp_path):
    """The program says how many there are; nothing is said of what is not known."""
    write(tmp_path, 0, [("meet", 1, 2), ("work", 2, 5)], program(ranks=4))
    write(tmp_path, 2, [("meet", 0, 2), ("work", 2, 5)], program(ranks=4))
    made = found(tmp_path)
    assert (made.world, made.missing, made.alone) == (4, [1, 3], 2)
    assert json.loads(made.to_json())["missing"] == [1, 3]
    (row,) = made.rows
    assert row.waiting_ns is None and row.predicted.wire_bytes == 2 * 3 * 4096 // 4
    assert [one.unmatched_ns for one in made.ranks] == [MS, 2 * MS]
    said = text.first_lines(made)
    assert "2 of 4 ranks" in said[0] and "no trace of ranks 1, 3" in said[1]
    assert "33% in runs that not all of their ranks have a trace of" in said[2]
    assert "waiting" not in said[2] and "moving" not in said[2]
    table = text.tables(made)[1]
    assert [list(column.cells) for column in table.columns][-2:] == [["?", "?"], ["?", "?"]]


HOST = {"plane": "/host:CPU"}  # events of no pod


def test_folders_say_which_rank_it_is(tmp_path):
    """Also where their order is another: rank10 comes before rank2."""
    for rank in (2, 10):
        write(tmp_path, rank, [("meet", 12 - rank, 12)], program(ranks=12), **HOST)
    made = found(tmp_path)
    assert [(one.rank, one.collectives_ns) for one in made.ranks] == [(2, 2 * MS), (10, 10 * MS)]
    assert not made.are_guessed


def test_folders_that_say_no_rank(tmp_path):
    for rank, folder in enumerate(("node2", "node9", "node10")):
        write(tmp_path, rank, [("meet", 0, rank + 1)], program(), into=folder, **HOST)
    made = found(tmp_path)
    assert [one.collectives_ns for one in made.ranks] == [MS, 2 * MS, 3 * MS]
    assert any("in the order of their folders" in line for line in text.first_lines(made))


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        (("rank0", "node1"), "node1.* no folder above it says which rank this is"),
        (("a/rank1", "b/rank-1"), "another trace of rank 1 at the same time"),
    ],
)
def test_folders_that_do_not_say_who_is_who(tmp_path, folders, said):
    for rank, folder in enumerate(folders):
        write(tmp_path, rank, [("meet", 0, 1)], program(), into=folder, **HOST)
    with pytest.raises(xplane.TraceError, match=said):
        found(tmp_path)


def test_pairs_wait_for_who_sends_to_them(tmp_path):
    hlo = program("collective-permute", [(0, 1)])
    write(tmp_path, 0, [("meet", 5, 6)], hlo)
    write(tmp_path, 1, [("meet", 1, 7)], hlo)
    (one,), _ = meetings.meetings(ops.ran(xplane.spaces(tmp_path)), 2)
    assert [one.waited_ns(op) for op in one.ops] == [0, 4 * MS]


def test_the_newest_run_counts(tmp_path):
    write(tmp_path, 0, [("meet", 1, 2)], program())
    write(tmp_path, 0, [("meet", 1, 2), ("meet", 3, 4)], program(), start_ms=1000)
    assert found(tmp_path).rows[0].runs == 2


def test_what_is_no_trace(tmp_path):
    def told(path):
        result = CliRunner().invoke(cli.txcc, ["profile", str(path)], standalone_mode=False)
        return str(result.exception or result.output)

    assert "expected a folder" in told(tmp_path / "absent")
    assert "start_trace(DIR)" in told(tmp_path)
    (tmp_path / "a.xplane.pb").write_bytes(b"\xff")
    assert "a.xplane.pb: expected an XSpace" in told(tmp_path)
    (tmp_path / "a.xplane.pb").write_bytes(b"")
    assert "no instruction of a program" in told(tmp_path)
    write(tmp_path, 0, [("meet", 1, 2)], b"\xff")
    assert "a program in it cannot be read" in told(tmp_path)


def traced(rank, folder):
    import torch_xla.debug.profiler as profiler

    weight = torch.ones(64, 64, device=torch_xla.device())
    for turn in range(4):
        if turn == 1 and rank == 0:
            profiler.start_trace(folder)
        if turn > 1 and rank == 2:
            time.sleep(0.1)
        weight = xm.all_gather(weight[:16], dim=0) @ weight / 64
        weight = weight + xm.all_reduce("sum", weight)
        torch_xla.sync(wait=True)
    weight.sum().item()
    if rank == 0:
        profiler.stop_trace()


def test_ranks_that_are_threads(tmp_path):
    """The names are those of the program's dump, and of what TensorBoard is given."""
    trace, dump = tmp_path / "trace", tmp_path / "dump"
    flags = f"--xla_dump_to={dump} --xla_dump_hlo_as_text"
    with worlds.World(4, env={"XLA_FLAGS": flags}) as world:
        world.run(traced, str(trace))
    done = subprocess.run(
        [sys.executable, "-m", "txcc", "profile", "--format=json", str(trace)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(ROOT / "python")},
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["world"] == 4 and [rank["rank"] for rank in made["ranks"]] == [0, 1, 2, 3]
    rows = {row["name"]: row for row in made["rows"]}
    # The late rank is waited for before programs are handed to devices.
    host = rows.pop("ranks meet")
    assert host["last"]["2"] >= 2 and host["waiting_ns"] > 20 * MS
    assert made["ranks"][2]["kept_waiting_ns"] > 200 * MS
    names = rows.keys()
    kinds = sorted(row["predicted"]["after"] for row in rows.values())
    assert kinds == ["all-gather", "all-reduce"]
    programs = [{row.name for row in one.rows} for one in inspected.of_path(str(dump))]
    assert names in programs
    (path,) = trace.rglob("*.trace.json.gz")
    shown = set(re.findall(r'"name":"([^"]+)"', gzip.decompress(path.read_bytes()).decode()))
    assert names <= shown
