"""Megatron-core's random streams: one for each tensor parallel rank, and one that they share."""

import processes
import pytest
import torch
import torch.distributed as dist

pytest.importorskip("megatron.core", reason="the extra clients brings it")

STEPS = 12


def streams(rank):
    """Where masks of dropout are alike, whether recomputing repeats them, what is left of it."""
    import torch_xla
    from megatron.core import parallel_state, tensor_parallel

    # Megatron-core has what it needs of torch.cuda by name before it is replaced, as in a script.
    from megatron.core.tensor_parallel import random

    import torch_xla_cc.distributed
    from torch_xla_cc.adapters import megatron

    torch_xla_cc.install()
    dist.init_process_group("cpu:gloo,xla:xla_cc")
    with megatron.installed():
        parallel_state.initialize_model_parallel(2, create_gloo_process_groups=False)
        tensor_parallel.model_parallel_cuda_manual_seed(7)
        queued = len(torch.cuda._queued_calls)
        x = torch.ones(64, device="cuda")
        own, shared, drawn = [], [], []
        for _ in range(STEPS):
            with random.get_cuda_rng_tracker().fork():
                own.append(torch.nn.functional.dropout(x))
            shared.append(torch.nn.functional.dropout(x))
            torch_xla.sync()
        weight = torch.full((64,), 2.0, device="cuda", requires_grad=True)

        def layer(weight):
            with random.get_cuda_rng_tracker().fork():
                drawn.append(torch.nn.functional.dropout(weight * 3))
            drawn.append(torch.nn.functional.dropout(weight))
            return drawn[-2] * drawn[-1]

        tensor_parallel.checkpoint(layer, False, weight).sum().backward()
        assert len(drawn) == 4
        repeated = [torch.equal(drawn[i].detach().cpu(), drawn[i + 2].cpu()) for i in range(2)]
        left = len(torch.cuda._queued_calls) - queued
    return [m.tolist() for m in own], [m.tolist() for m in shared], repeated, left


def test_each_rank_has_a_stream_of_its_own_and_one_that_all_share():
    (own, shared, *first), (others, same, *second) = processes.run(2, streams)
    assert first == second == [[True, True], 0]
    assert shared == same
    for masks in own, others, shared:
        assert len(set(map(tuple, masks))) == STEPS
        assert all(0 < sum(mask) < 128 for mask in masks)
    assert all(mine != theirs for mine, theirs in zip(own, others, strict=True))
