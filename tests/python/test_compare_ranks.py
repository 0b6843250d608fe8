"""compare_ranks: jobs of several ranks, traced in one process (tests/python/jobs.py)."""

import json
from pathlib import Path

import forks
import pytest

import torch_xla_cc

JOBS = Path(__file__).parent / "jobs.py"
TPU = "tpu:v5e:2x2"


def compared(target, nprocs, *jobs):
    """The report of each job, as JSON."""
    done = forks.run_script(JOBS, target, str(nprocs), *jobs, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("launch") == {"sums": [[float(nprocs)] * 2] * nprocs}
    return found


@pytest.fixture(scope="module", params=["cpu", TPU])
def reports(request):
    jobs = (
        "gather by_halves constants other_op one_less momentum momentum=3 momentum=4 reads "
        "some_read raises used_afterwards of_groups channels with_gradients"
    )
    return request.param, compared(request.param, 4, *jobs.split())


def each_to_each(amount):
    return [[0 if a == b else amount for b in range(4)] for a in range(4)]


def test_one_program(reports):
    found = reports[1]["gather"]
    assert found["programs"] == [[0, 1, 2, 3]]
    assert found["divergence"] is found["difference"] is None
    assert found["traffic"] == each_to_each(8 * 4 * 4)
    (row,) = found["reports"][0]["rows"]
    assert (row["before"], row["after"], row["file"]) == (["all-gather"], "?", str(JOBS))
    assert row["line"] == found["at"] + 1


def test_functions_and_regions(reports):
    """Which block is a rank's, and which rank is the root, is data."""
    assert reports[1]["with_gradients"]["programs"] == [[0, 1, 2, 3]]


def test_groups(reports):
    amount = 2 * 16 * 4 // 2
    halves = [[0, amount, 0, 0], [amount, 0, 0, 0], [0, 0, 0, amount], [0, 0, amount, 0]]
    assert reports[1]["by_halves"]["traffic"] == halves
    found = reports[1]["of_groups"]
    assert found["programs"] == [[0, 1, 2, 3]]
    world, column = 2 * 32 // 4, 2 * 32 // 2
    assert found["traffic"][0] == [0, world, world + column, world]
    assert found["traffic"][1] == [world, 0, world, world + column]


def test_pairs(reports):
    # On CPU pairs exchange, all at once: its threads cannot send one way.
    others = 32 if reports[0] == "cpu" else 0
    traffic = [[0, 32, 0, 0], [others, 0, 0, 0], [0, 0, 0, others], [0, 0, others, 0]]
    assert reports[1]["channels"]["traffic"] == traffic


def test_an_instruction_that_differs(reports):
    found = reports[1]["constants"]
    assert found["programs"] == [[0, 2, 3], [1]]
    assert found["divergence"] is None
    one, other = found["difference"]["places"]
    assert (one["rank"], other["rank"]) == (0, 1)
    assert one["text"].startswith("slice f32[1]{0} slice_dimensions { limit: 1")
    assert other["text"].startswith("slice f32[1]{0} slice_dimensions { start: 1 limit: 2")
    for place in (one, other):
        assert (place["file"], place["line"]) == (str(JOBS), found["at"] + 2)


def test_collectives_that_differ(reports):
    found = reports[1]["other_op"]["divergence"]
    assert found["index"] == 1
    one, other = found["places"]
    assert one["text"].startswith("all_reduce(reduce_type=max")
    assert other["text"].startswith("all_gather(dim=0")
    at = reports[1]["other_op"]["at"]
    assert [(p["rank"], p["file"], p["line"]) for p in (one, other)] == [
        (0, str(JOBS), at + 4),
        (2, str(JOBS), at + 3),
    ]


def test_a_collective_that_is_missing(reports):
    one, other = reports[1]["one_less"]["divergence"]["places"]
    assert one["rank"] == 0 and one["text"].startswith("all_reduce(reduce_type=max")
    assert other == {"rank": 1, "text": "", "file": "", "line": 0}


def test_steps(reports):
    first, last = (reports[1][name] for name in ("momentum", "momentum=3"))
    assert (first["ran"], last["ran"]) == (0, 4 * 2)
    for found in (first, last):
        assert found["programs"] == [[0, 1, 2, 3]]
        assert [row["before"] for row in found["reports"][0]["rows"]] == [["all-reduce"]]
    found = reports[1]["momentum=4"]
    assert found["error"] == "StepError"
    assert "has ended after 3 steps with collectives, but step = 4" in found["message"]


def test_reads(reports):
    target, found = reports[0], reports[1]["reads"]
    if target == "cpu":  # both parts of the step
        rows = found["reports"][0]["rows"]
        assert [row["before"][0] for row in rows] == ["all-reduce", "all-gather"]
        return
    assert found["error"] == "StepError"
    at = found["at"]
    assert (
        f"reads a tensor at {JOBS}:{at + 2} after all_reduce of {JOBS}:{at + 1}"
        in (found["message"])
    )


def test_reads_of_some_ranks(reports):
    found = reports[1]["some_read"]
    if reports[0] == "cpu":
        assert found["error"] in ("RanksDisagree", "CollectiveMismatchError")
    else:
        assert found["error"] == "StepError"


def test_a_rank_that_raises(reports):
    found = reports[1]["raises"]
    assert (found["error"], found["message"]) == ("KeyError", "'of rank 1'")


def test_what_was_taken_can_be_used(reports):
    assert "error" not in reports[1]["used_afterwards"], reports[1]["used_afterwards"]


def test_64_ranks():
    found = compared("tpu:v5e:8x8", 64, "gather", "other_op")
    assert found["gather"]["programs"] == [list(range(64))]
    assert sum(map(sum, found["gather"]["traffic"])) == 64 * 63 * 128
    assert [p["rank"] for p in found["other_op"]["divergence"]["places"]] == [0, 2]


@pytest.mark.parametrize(
    ("target", "nprocs", "step", "message"),
    [
        ("cpu", None, 1, "does not say how many ranks there are. Give nprocs"),
        (TPU, 8, 1, f"nprocs = 8, but target = '{TPU}' has 4 devices"),
        ("tpu:v9:2x2", None, 1, "tpu:v9"),
        (TPU, None, 0, "step = 0, but it must be an int from 1"),
        (TPU, None, 1.0, "step = 1.0, but"),
    ],
)
def test_wrong_arguments(target, nprocs, step, message):
    with pytest.raises(ValueError, match=message):
        torch_xla_cc.compare_ranks(lambda rank: None, (), nprocs, target=target, step=step)
