"""torch.distributed.pipelining."""

import time

import pipelines
import pods
import pytest
import runs


@pytest.mark.parametrize(("one_f_one_b", "ranks"), [(0, 2), (1, 4)])
def test_losses_are_those_of_gloo(one_f_one_b, ranks):
    runs.same_losses("pipeline.py", f"--one-f-one-b={one_f_one_b}", ranks=ranks)


@pytest.mark.parametrize("one_f_one_b", [0, 1])
def test_on_the_pod_a_step_is_a_program_and_what_reads(one_f_one_b):
    ran = runs.same_losses("pipeline.py", f"--one-f-one-b={one_f_one_b}", ranks=4, device="POD")
    assert runs.programs_of_a_step(ran) == (2, 0)


@pytest.mark.parametrize(
    ("kind", "ranks", "chunks"),
    [
        ("ScheduleGPipe", 3, 5),
        ("Schedule1F1B", 3, 4),
        ("ScheduleInterleaved1F1B", 2, 4),
        ("ScheduleLoopedBFS", 2, 3),
        ("ScheduleInterleavedZeroBubble", 2, 4),
    ],
)
def test_schedules_on_the_pod(kind, ranks, chunks):
    begun = time.monotonic()
    for wrong, ran, evaluated in pods.run(
        ranks, pipelines.trains, ranks, kind, chunks, 5, 20, timeout_s=200.0
    ):
        assert not wrong
        assert all(programs <= 3 for programs, _ in ran), ran
        # Zero bubble goes through sets of autograd's nodes, so the order in a program changes.
        assert kind == "ScheduleInterleavedZeroBubble" or not any(n for _, n in ran), ran
        assert not any(evaluated)
    assert time.monotonic() - begun < 100  # no evaluation waits until another rank is idle
