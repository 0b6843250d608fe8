"""Megatron-core's distributed optimizer on a pod that takes one program only, beside gloo's."""

import pods
import programs
import pytest
import torch
import torch.distributed as dist

pytest.importorskip("megatron.core", reason="the extra clients brings it")
pytest.importorskip("jaxlib", reason="the pod needs it")

STEPS, LOADED = 7, 4


def model_of(config, device, dtype, tp_rank, seed):
    """Odd sizes, of which tensor parallel ranks have some each for itself."""
    from megatron.core.transformer.module import MegatronModule

    class Small(MegatronModule):
        def __init__(self):
            super().__init__(config)
            torch.manual_seed(seed)
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(17, 33), torch.nn.Tanh(), torch.nn.LayerNorm(33)
            )
            self.last = torch.nn.Linear(33, 5)
            with torch.no_grad():
                split = self.layers[0].weight
                split.add_(0.1 * tp_rank)
                split.tensor_model_parallel = True

        def forward(self, x):
            return self.last(self.layers(x))

    return Small().to(dtype).to(device)


def optimizer_of(device, case):
    """A new model, and its optimizer."""
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer import TransformerConfig

    dtype = torch.bfloat16 if case.get("bf16") else torch.float32
    config = TransformerConfig(
        num_layers=1,
        hidden_size=8,
        num_attention_heads=2,
        tensor_model_parallel_size=case.get("tp", 1),
        params_dtype=dtype,
        bf16=dtype is torch.bfloat16,
    )
    ddp = DistributedDataParallelConfig(
        use_distributed_optimizer=True,
        bucket_size=100 if case.get("buckets") else None,
        overlap_grad_reduce=bool(case.get("buckets")),
        overlap_param_gather=bool(case.get("buckets")),
        grad_reduce_in_fp32=True,
    )
    rank = parallel_state.get_tensor_model_parallel_rank()
    model = DistributedDataParallel(
        config, ddp, model_of(config, device, dtype, rank, case.get("seed", 1))
    )
    settings = OptimizerConfig(
        optimizer="adam",
        lr=1e-2,
        weight_decay=0.1,
        clip_grad=case.get("clip", 0.2),
        log_num_zeros_in_grad=True,
        use_distributed_optimizer=True,
        overlap_param_gather=bool(case.get("buckets")),
        params_dtype=dtype,
        bf16=dtype is torch.bfloat16,
    )
    optimizer = get_megatron_optimizer(settings, [model], use_gloo_process_groups=False)
    return model, optimizer, dtype


def saved(model, optimizer):
    """A copy on the CPU, of the sizes that Megatron-core's checkpoints have."""
    (own,) = optimizer.chained_optimizers
    state = own.get_parameter_state_dp_reshardable()
    pieces = {
        number: {
            kind: [
                [
                    {k: v.cpu().clone() if torch.is_tensor(v) else v for k, v in piece.items()}
                    | {"padding": False}  # as its checkpoints have it
                    for piece in bucket
                ]
                for bucket in buckets
            ]
            for kind, buckets in of_buffer.items()
        }
        for number, of_buffer in state.items()
        if isinstance(number, int)
    }
    weights = {k: v.cpu().clone() for k, v in model.state_dict().items() if torch.is_tensor(v)}
    return weights, optimizer.state_dict(), {**state, **pieces}


def load(model, optimizer, weights, common, pieces):
    (own,) = optimizer.chained_optimizers
    model.load_state_dict(weights, strict=False)
    optimizer.load_state_dict(common)
    with torch.no_grad():
        own.load_parameter_state_from_dp_reshardable(pieces)
    if next(model.parameters()).device.type == "cpu":
        # All pieces have got one tensor for the number of the step, which each of them counts up.
        for state in own.optimizer.state.values():
            state["step"] = state["step"].clone()


def trained(device, case):
    """Losses, norms and zeros of the steps, what was saved, and parameters at the end."""
    from megatron.core import parallel_state

    model, optimizer, dtype = optimizer_of(device, case)
    seed = parallel_state.get_data_parallel_rank()
    x = torch.randn(6, 17, generator=torch.Generator().manual_seed(seed))
    x[:, 0] = 0.0  # and so are gradients
    wanted, x = 2.0 * x[:, :5].to(device), x.to(dtype).to(device)
    found, steps = [], []
    for step in range(STEPS):
        if step == LOADED and not case.get("straight"):
            state = saved(model, optimizer)
            model, optimizer, _ = optimizer_of(device, {**case, "seed": 2})
            load(model, optimizer, *state)
        for number, group in enumerate(optimizer.param_groups):
            group["lr"] = 1e-2 / (1 + number)
        before = programs.ran()
        model.zero_grad_buffer()
        optimizer.zero_grad()
        loss = (model(x).float() - wanted).square().mean()
        loss.backward()
        model.finish_grad_sync()
        _, norm, zeros = optimizer.step()
        steps.append(programs.ran() - before)
        found.append([float(loss), float(norm), float(zeros)])
    if case.get("buckets"):
        model.start_param_sync(force_sync=True)
    if case.get("straight"):
        return found, [], [], []
    sizes = [
        [list(piece["exp_avg"].shape) for bucket in buckets for piece in bucket]
        for number, of_buffer in state[2].items()
        if isinstance(number, int)
        for buckets in of_buffer.values()
    ]
    return found, sizes, [p.detach().float().cpu() for p in model.parameters()], steps


def both(rank, case):
    """On the CPU by gloo, and on the pod."""
    import torch_xla
    from megatron.core import parallel_state

    import torch_xla_cc.distributed
    from torch_xla_cc.adapters import megatron, optimizers

    torch_xla_cc.install()  # torch_xla replaces new_group
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    parallel_state.initialize_model_parallel(case.get("tp", 1), create_gloo_process_groups=False)
    try:
        with optimizers.installed(), torch_xla_cc.distributed.in_graph():
            of_device = []
            for device in ("cpu", torch_xla.device()):
                with megatron.installed(device):
                    of_device.append(trained(device, case))
            with megatron.installed("cpu"):  # without an interruption
                of_device.append(trained("cpu", {**case, "straight": 1}))
            return of_device
    finally:
        parallel_state.destroy_model_parallel()


@pytest.mark.parametrize(
    ("ranks", "case"),
    [
        (3, {}),
        (3, {"buckets": 1, "bf16": 1}),
        (4, {"tp": 2, "buckets": 1}),
    ],
)
def test_it_is_one_program_with_the_values_of_gloo(ranks, case, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pods.ranks(ranks, TORCH_XLA_CC_POD_PROGRAMS="same") as started:
        by_rank = started.run(pods.joined, both, case, timeout_s=200)
    rel = 2e-2 if case.get("bf16") else 1e-5
    for theirs, ours, straight in by_rank:
        for one, other, last in zip(ours[0], theirs[0], straight[0], strict=True):
            assert one[:2] == pytest.approx(other[:2], rel=rel)
            assert one[:2] == pytest.approx(last[:2], rel=rel)
            assert 33.0 <= other[2] == pytest.approx(one[2], abs=100.0 * rel)
        assert ours[1] == theirs[1]  # what is saved has the same sizes
        for one, other in zip(ours[2], theirs[2], strict=True):
            torch.testing.assert_close(one, other, rtol=rel, atol=rel)
        steady = [n for n in ours[3][1:] if n]
        assert steady.count(1) >= len(steady) - 1, ours[3]
    sizes = [theirs[1] for theirs, *_ in by_rank]
    assert any(one != sizes[0] for one in sizes)  # of pieces: each rank has its own
