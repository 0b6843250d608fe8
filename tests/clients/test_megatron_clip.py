"""Megatron-core's norm of gradients, clipping and zeros, in the step's program and without."""

import inspect
import math
from unittest import mock

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
    assert isinstance(zeros, torch.Tensor) == (held[0].device.type == "xla")
    return isinstance(norm, torch.Tensor), float(norm), float(zeros), [p.grad.cpu() for p in held]


CASES = [
    (1.0, 2.0, 1.0),  # clipped
    (1.0, 2.0, 1e3),  # as it was
    (1.0, 3.0, 0.1),
    (1.0, math.inf, 0.5),  # left to Megatron-core
    (0.0, 2.0, 1.0),
    (math.inf, 2.0, 1.0),
    (math.nan, 2.0, 1.0),
]


def one_infinite(rank, device):
    """Clipping where one element of one rank is infinite, and where one rank has no gradient."""
    from megatron.core.optimizer import clip_grads

    found = []
    for mine in ([0.0, 2.0, math.inf if rank else 1.0], [1.0, -2.0]):
        held = [torch.nn.Parameter(torch.zeros(len(mine), device=device))]
        held[0].grad = torch.tensor(mine, device=device)
        if len(mine) == 2 and rank:
            held = []
        norm = clip_grads.get_grad_norm_fp32(
            grads_for_norm=[p.grad for p in held], grad_stats_parallel_group=dist.group.WORLD
        )
        clip_grads.clip_grad_by_total_norm_fp32(
            parameters=iter(held), max_norm=0.5, total_norm=norm
        )
        found.append((float(norm), [p.grad.tolist() for p in held]))
    return found


def of_bfloat16(device):
    """The norm and the zeros of gradients as an optimizer with decoupled ones has them."""
    from megatron.core.optimizer import clip_grads

    x = torch.randn(3000, 50, generator=torch.Generator().manual_seed(1)).bfloat16()
    parameter = torch.nn.Parameter(torch.zeros(3000, 50, dtype=torch.bfloat16, device=device))
    parameter.decoupled_grad = torch.where(x.abs() < 0.5, 0.0, x).to(device)
    norm = clip_grads.get_grad_norm_fp32([parameter.decoupled_grad], 2, dist.group.WORLD)
    parameters = (p for p in [parameter])
    zeros = clip_grads.count_zeros_fp32(parameters, dist.group.WORLD, use_decoupled_grad=True)
    wanted = parameter.decoupled_grad.cpu().double().norm().item() * math.sqrt(2.0)
    return float(norm) / wanted, float(zeros)


class Chained:
    """Two optimizers, each with gradients of a group of its own, as ChainedOptimizer has them."""

    def __init__(self, norms):
        self.chained_optimizers = [mock.Mock(get_grad_norm=lambda one=one: one) for one in norms]

    def grads_states_parallel_group_is_shared(self):
        return False


def of_several(device):
    from megatron.core.optimizer import optimizer

    tensors = [torch.tensor(x, device=device) for x in (3.0, 4.0)]
    return [
        float(optimizer.ChainedOptimizer.get_grad_norm(Chained(norms)))
        for norms in (tensors, [3.0, 0.0], [None, 2.0], [tensors[0], 4.0])
    ]


def refused(device):
    """float16, which Megatron-core asserts that it is not."""
    from megatron.core.optimizer import clip_grads

    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float16, device=device))
    parameter.grad = torch.ones_like(parameter)
    try:
        clip_grads.clip_grad_by_total_norm_fp32([parameter], 0.5, torch.ones((), device=device))
    except AssertionError:
        return True
    return False


def names():
    """What Megatron-core has under the names that are replaced."""
    from megatron.core.optimizer import clip_grads, layer_wise_optimizer, optimizer

    functions = ("get_grad_norm_fp32", "clip_grad_by_total_norm_fp32", "count_zeros_fp32")
    modules = (clip_grads, layer_wise_optimizer, optimizer)
    return [getattr(m, f) for m in modules for f in functions if hasattr(m, f)]


def steps():
    from megatron.core.optimizer import optimizer

    kinds = ("MixedPrecisionOptimizer", "FP32Optimizer", "ChainedOptimizer")
    return [getattr(optimizer, kind).step for kind in kinds]


def both(rank):
    """On the CPU by gloo and on XLA, of each case."""
    import torch_xla
    from megatron.core import parallel_state

    import torch_xla_cc.distributed
    from torch_xla_cc.adapters import megatron

    torch_xla_cc.install()  # torch_xla replaces new_group
    dist.init_process_group("cpu:gloo,xla:xla_cc")
    parallel_state.initialize_model_parallel(2, create_gloo_process_groups=False)
    found, before = [], steps()
    for device in ("cpu", torch_xla.device()):
        with megatron.installed(device):
            assert all(ours is not theirs for ours, theirs in zip(steps(), before, strict=True))
            cases = [of_scale(rank, device, *case) for case in CASES]
            more = of_several(device), of_bfloat16(device), refused(device)
            found.append((cases, one_infinite(rank, device), *more))
    # Only now: had names() imported a module before install() did, a fault would be hidden.
    assert all(inspect.unwrap(function) is function for function in names())
    assert steps() == before
    return found


def test_in_the_program_they_are_what_megatron_reads():
    with processes.Processes(2) as ranks:
        by_rank = ranks.run(both, timeout_s=100)
    for (cpu, *of_cpu), (xla, *of_xla) in by_rank:
        for case, theirs, ours in zip(CASES, cpu, xla, strict=True):
            assert not theirs[0] and ours[0] == (case[1] != math.inf), case
            assert ours[1:3] == pytest.approx(theirs[1:3], rel=1e-6, nan_ok=True), case
            for a, b in zip(ours[3], theirs[3], strict=True):
                assert torch.allclose(a, b, rtol=1e-6, atol=0.0, equal_nan=True), case
        for (norm, clipped), (wanted, theirs) in zip(of_xla[0], of_cpu[0], strict=True):
            assert norm == pytest.approx(wanted, rel=1e-6)
            assert len(clipped) == len(theirs)
            for ours, wanted in zip(clipped, theirs, strict=True):
                assert ours == pytest.approx(wanted, rel=1e-6, nan_ok=True)
        assert of_xla[1] == [5.0, 3.0, 2.0, 5.0] and of_xla[3]
        assert of_xla[2][0] == pytest.approx(1.0, rel=1e-4)
        assert of_xla[2][1] == of_cpu[2][1] > 0.0
    first, second = (xla[0] for _, xla in by_rank)
    assert first[0][1] == second[0][1]  # one norm on all ranks
    assert first[0][3][0].abs().sum() < first[1][3][0].abs().sum()  # it was clipped
