"""A rank's own part of something whole, which adapters look up by a table of ranks."""

import os
import subprocess
import sys
from pathlib import Path

import own_parts
import pytest
import worlds

pytestmark = pytest.mark.usefixtures("leaves_ranks")
SIZE = 4


def test_chunks_are_those_of_torch():
    same = dict.fromkeys(("world", "rows", "columns", "backwards"), True)
    assert worlds.run(SIZE, own_parts.chunks, SIZE) == [same] * SIZE


@pytest.mark.parametrize("what", ["windows", "left_to_torch", "without_a_source"])
def test_windows_what_is_left_to_torch_and_what_nobody_sends(what):
    assert all(worlds.run(SIZE, getattr(own_parts, what), SIZE))


def test_masks_of_indices_of_any_type():
    assert worlds.run(2, own_parts.masks, 2) == [[], []]


def test_masks_run_nothing():
    assert worlds.run(2, own_parts.masks_run_nothing, 2) == [(0, True)] * 2


def test_numbers_of_a_rank():
    assert all(worlds.run(2, own_parts.numbers_of_a_rank, 2))


@pytest.mark.parametrize("devices", [1, 4])
def test_a_dry_run_is_of_its_rank(devices):
    program = "import own_parts; print(own_parts.in_a_dry_run(2, 4))"
    env = {**os.environ, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(devices)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout == "[4, 5]\n", done.stderr
