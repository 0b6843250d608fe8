"""torch.compile of functions with collectives: right on each call, and compiled once."""

import compiled_calls as compiled
import processes
import pytest
import torch
import worlds

RUN = {"threads": worlds.run, "processes": processes.run}
NAMES = [function.__name__ for function in compiled.FUNCTIONS]


def check(ours, wanted):
    assert len(ours) == len(wanted)
    for mine, right in zip(ours, wanted, strict=True):
        assert len(mine) == len(right)
        for x, y in zip(mine, right, strict=True):
            assert x.dtype == y.dtype
            assert torch.equal(x, y)


SOME = ["several", "in_place", "gradient"]


@pytest.mark.parametrize(
    ("world", "where", "backend", "names"),
    [
        (2, "threads", "openxla", NAMES),
        (2, "threads", "aot_eager", NAMES),
        (2, "processes", "openxla", NAMES),
        (2, "processes", "eager", SOME),
        (4, "threads", "openxla", SOME),
        (4, "threads", "eager", SOME),
        (4, "processes", "openxla", SOME),
        (4, "processes", "aot_eager", SOME),
    ],
)
def test_each_call_is_right(world, where, backend, names):
    for by_name in RUN[where](world, compiled.all_of_them, names, backend, timeout_s=120):
        for ours, wanted in by_name:
            check(ours, wanted)


@pytest.mark.parametrize("where", RUN)
def test_of_a_group(where):
    found = RUN[where](4, compiled.both, "several", "openxla", [1, 3])
    assert [len(ours) for ours, _ in found] == [0, compiled.CALLS] * 2
    for ours, wanted in found:
        check(ours, wanted)


def test_the_program_has_the_instructions_and_is_compiled_once(tmp_path):
    flags = {"XLA_FLAGS": f"--xla_dump_to={tmp_path}"}
    with worlds.World(2, env=flags) as world:
        for found, counts in world.run(compiled.programs):
            assert found == [2.0, 6.0, 10.0, 14.0]
            assert counts[1][0] == counts[3][0]  # compiles
            assert counts[0][1] < counts[1][1] < counts[2][1] < counts[3][1]  # runs of the captured
    texts = [path.read_text() for path in tmp_path.glob("*before_optimizations.txt")]
    whole = [text for text in texts if " all-reduce(" in text and " all-gather(" in text]
    assert whole


def test_beside_a_rank_that_does_not_compile():
    assert worlds.run(2, compiled.mixed) == [[[3.0, 3.0], [7.0, 7.0]]] * 2


def test_programs_that_differ():
    for text, x in worlds.run(2, compiled.differ):
        assert "all_gather" in text
        assert "all_reduce" in text
        assert x == [[2.0, 2.0]] * 2


def test_without_tensor_arguments():
    """Right, or refused."""
    for found in worlds.run(2, compiled.without_tensors, launch_timeout_s=20):
        assert found == [[2.0, 2.0]] * 2 or "without tensor arguments" in found, found
