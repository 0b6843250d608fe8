"""The tutorial's programs do on XLA devices what they do on the CPU through gloo."""

import processes
import pytest
import torch
import torch.distributed as dist
import torch_xla
import tutorial
import worlds

RUN = {"threads": worlds.run, "processes": processes.run}
PROGRAMS = ("blocking", "non_blocking", "group_of_two", "ring", "gradients")


def both(rank, name):
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    program = getattr(tutorial, name)
    found = program(rank, torch_xla.device()), program(rank, "cpu")
    dist.all_reduce(torch.zeros(1))
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("where", RUN)
def test_as_on_the_cpu(where, name):
    if where == "threads" and name == "gradients":
        # torch.manual_seed is the process's: ranks on threads would draw each other's numbers.
        results = RUN[where](1, both, name)
    else:
        results = RUN[where](4, both, name)
    for ours, wanted in results:
        assert torch.allclose(ours, wanted, rtol=1e-5)
        assert name == "gradients" or torch.equal(ours, wanted)
