"""Megatron-core's norm of gradients, clipping and zeros, in the step's program and without."""

import math

import processes
import pytest
import torch
import torch.distributed as dist

pytest.importorskip("megatron.core", reason="the extra clients brings it")

SHAPES = ((3, 5), (7,), (1,), (4, 1, 3))
ALIKE = (1, 2)  # which of these tensor parallel ranks have alike


def gradients(rank, device, scale):
    """Parameters of this rank, with gradients of which some are zero."""
    made = []
    for number, shape in enumerate(SHAPES):
        seed = number if number in ALIKE else 100 * (rank + 1) + number
        value = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale
        value = torch.where(value.abs() < 0.3 * abs(scale), 0.0, value)
        parameter = torch.nn.Parameter(torch.zeros(shape, device=device))
        parameter.tensor_model_parallel = number not in ALIKE
        parameter.grad = value.to(device)
        made.append(parameter)
    return made


class Holder:
    """What MegatronOptimizer.get_main_grads_for_grad_norm asks an optimizer for."""

    def __init__(self, parameters, config):
        self.parameters, self.config = parameters, config

    def get_parameters(self):
        return self.parameters


def of_scale(rank, device, scale, norm_type, max_norm):
    """The norm, the zeros, and the clipped gradients."""
    from megatron.core.optimizer import OptimizerConfig, clip_grads, optimizer

    held = gradients(rank, device, scale)
    config = OptimizerConfig(lr=1.0)
    config.use_precision_aware_optimizer_no_fp8_or_ds_fp8 = False
    counted = optimizer.MegatronOptimizer.get_main_grads_for_grad_norm(Holder(held, config))
    norm = optimizer.get_grad_norm_fp32(counted, norm_type, dist.group.WORLD)
    zeros = clip_grads.count_zeros_fp32(held, dist.group.WORLD)
    optimizer.clip_grad_by_total_norm_fp32(held, max_norm, norm)
    is_tensor = isinstance(norm, torch.Tensor) and isinstance(zeros, torch.Tensor)
    return is_tensor, float(norm), float(zeros), [p.grad.cpu() for p in held]


CASES = [
    (1.0, 2.0, 1.0),  # clipped
    (1.0, 2.0, 1e3),  # as it was
    (1.0, 3.0, 0.1),
    (1.0, math.inf, 0.5),
    (0.0, 2.0, 1.0),
    (math.inf, 2.0, 1.0),
    (math.nan, 2.0, 1.0),
]


def both(rank):
    """On the CPU by gloo and on XLA, of each case."""
    import torch_xla
    from megatron.core import parallel_state

    import torch_xla_cc.distributed
    from torch_xla_cc.adapters import megatron

    torch_xla_cc.install()  # torch_xla replaces new_group
    dist.init_process_group("cpu:gloo,xla:xla_cc")
    parallel_state.initialize_model_parallel(2, create_gloo_process_groups=False)
    found = []
    for device in ("cpu", torch_xla.device()):
        with megatron.installed(device):
            found.append([of_scale(rank, device, *case) for case in CASES])
    return found


def test_in_the_program_they_are_what_megatron_reads():
    with processes.Processes(2) as ranks:
        by_rank = ranks.run(both, timeout_s=100)
    for cpu, xla in by_rank:
        for case, theirs, ours in zip(CASES, cpu, xla, strict=True):
            assert not theirs[0] and ours[0], case
            assert ours[1:3] == pytest.approx(theirs[1:3], rel=1e-6, nan_ok=True), case
            for a, b in zip(ours[3], theirs[3], strict=True):
                assert torch.allclose(a, b, rtol=1e-6, atol=0.0, equal_nan=True), case
    norms, others = ([found[1] for found in xla] for _, xla in by_rank)
    assert norms[0] == others[0]
    assert by_rank[0][1][0][3][0].abs().sum() < by_rank[0][1][1][3][0].abs().sum()  # was clipped
