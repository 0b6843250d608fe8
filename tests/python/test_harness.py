"""What the harness says of a worker that does not answer."""

import os
import time

import processes
import pytest
import worlds


def sleeps(rank, sleeper, failing):
    if rank == failing:
        raise ValueError("answers")
    if rank == sleeper:
        time.sleep(60)


def test_of_processes_it_says_where_the_rank_is_and_what_others_said():
    with processes.Processes(2) as ranks:
        with pytest.raises(worlds.WorkerHung, match=r"(?s)rank 1 took .* in sleeps") as hung:
            ranks.run(sleeps, 1, 0, timeout_s=2)
        assert hung.value.__notes__ == ["1 had answered\nrank 0: ValueError('answers')"]
        assert ranks.run(sleeps, -1, -1) == [None, None]


def test_of_threads_it_says_where_they_are():
    with (
        worlds.World(2) as world,
        pytest.raises(worlds.WorkerHung, match=r"(?s)in sleeps.*in _join"),
    ):
        world.run(sleeps, 1, -1, timeout_s=2, launch_timeout_s=30)


def widens(rank, size, fails):
    was = os.environ["WORLD_SIZE"]
    os.environ["WORLD_SIZE"] = size
    if fails:
        raise ValueError("fails as well")
    return was


def test_a_function_that_leaves_another_size_fails_and_not_the_next():
    with processes.Processes(1) as ranks:
        with pytest.raises(AssertionError, match=r"widens left .*'WORLD_SIZE': \('1', '3'\)"):
            ranks.run(widens, "3", False)
        with pytest.raises(ValueError, match="fails as well"):
            ranks.run(widens, "3", True)
        assert ranks.run(widens, "1", False) == ["1"]
