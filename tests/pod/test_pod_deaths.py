"""Ranks and device processes that die: what the others are told, and that nothing is left."""

import time

import pods
import pytest
import several_ranks

SLACK_S = 5.0


def outcomes(size, who, when, what, **env):
    """By rank: the outcome, or how it died; and the device processes that are left after a time."""
    with pods.ranks(size, **env) as ranks:
        assert ranks.run(pods.joined, several_ranks.ids)
        devices = pods.device_processes(ranks.pids)
        assert sorted(devices) == sorted(ranks.pids)
        results = pods.outcomes(ranks, several_ranks.dies, who, when, what)
    return results, set(devices.values())


def ended(processes):
    """Whether all have ended, which the kernel takes a moment for."""
    end = time.monotonic() + SLACK_S
    while time.monotonic() < end and pods.alive(processes):
        time.sleep(0.05)
    return not pods.alive(processes)


@pytest.mark.parametrize("by", ["memory", "gloo"])
@pytest.mark.parametrize("what", ["device", "rank"])
@pytest.mark.parametrize("when", ["before", "during"])
def test_a_rank_dies(when, what, by):
    results, devices = outcomes(3, 2, when, what, TORCH_XLA_CC_POD_COLLECTIVES=by)
    for message, took, still in results[:2]:
        assert "the device process of rank 2 has ended" in message
        assert took < 1.0 + SLACK_S
        assert still == [1.0, 2.0, 3.0, 4.0]  # what is there can still be read
    if what == "device":
        message, took, still = results[2]
        assert "the pod's device process of rank 2" in message
        assert "killed by signal 9" in message
        assert took < 2.0 + SLACK_S
        assert still is None
    else:
        assert "signal 9" in results[2] or "SIGKILL" in results[2]
    assert ended(devices)


@pytest.mark.parametrize("what", ["device", "rank"])
def test_rank_0_dies(what):
    results, devices = outcomes(2, 0, "during", what)
    message, took, _ = results[1]
    assert "the device process of rank 0 has" in message
    assert took < 1.0 + SLACK_S
    assert ended(devices)


@pytest.mark.parametrize("who", [0, 2])
def test_a_device_process_is_stopped(who):
    limit_s = 4.0
    env = {"TORCH_XLA_CC_TIMEOUT_S": f"{limit_s:g}"}
    results, devices = outcomes(3, who, "during", "stopped", **env)
    for rank, (message, took, still) in enumerate(results):
        assert took < limit_s + SLACK_S + 2.0  # of which the kernel's signal takes 1 s
        if rank == who:
            assert "was stopped (SIGSTOP) for 4 s, and did not end, and was killed" in message
            assert still is None
        else:
            assert f"rank {who}" in message
    assert ended(devices)


def test_a_rank_is_too_late():
    limit_s = 3.0
    with pods.ranks(3, TORCH_XLA_CC_TIMEOUT_S=f"{limit_s:g}") as ranks:
        outcomes = ranks.run(pods.joined, several_ranks.is_late, limit_s + 4)
    for message, took in outcomes:
        assert f"TORCH_XLA_CC_TIMEOUT_S is {limit_s:g}" in message
        assert took < limit_s + SLACK_S
        waits, late = "has begun 2 collectives, and is in", "has begun 1 collectives"
        assert f"rank 0 {waits}" in message
        assert f"rank 1 {waits}" in message
        assert f"rank 2 {late}" in message


def test_shared_memory_is_full():
    with pods.ranks(2) as ranks:
        first, second = ranks.run(pods.joined, several_ranks.has_no_shared_memory)
    assert first == (3.0, [])
    assert second[0] == 3.0
    assert len(second[1]) == 2
    for said in second[1]:
        assert "bytes of shared memory for a tensor, and fallocate failed" in said


def test_a_rank_cannot_run_what_the_others_run():
    with pods.ranks(2) as ranks:
        first, second = ranks.run(pods.joined, several_ranks.fails_alone)
    assert "a program with collectives failed on rank 0" in second
    assert "Out of memory" in first
    assert "Out of memory" in second
