"""A GPT of Megatron-core: tensor, sequence, pipeline, expert and data parallel.

    torchrun --standalone --nproc-per-node=4 examples/clients/megatron_gpt.py --tp=4
    torchrun --standalone --nproc-per-node=4 examples/clients/megatron_gpt.py --tp=2 --pp=2

`--sequence-parallel=1` splits the sequence too, `--experts=4 --ep=4` makes the MLPs experts,
`--vpp=2` gives each pipeline stage two parts of the model, `--distributed-optimizer=1` splits the
optimizer's state among data parallel ranks. `--buckets=1` makes several buckets of parameters,
which are gathered and reduced while others compute. `--bf16=1` computes in bfloat16. `--layers=4`
makes as many in place of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from common import Run
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

import torch_xla_cc
from torch_xla_cc.adapters import megatron

SEQUENCE, VOCABULARY, MICRO_BATCH, MICRO_BATCHES = 32, 128, 2, 2
Batch = tuple[torch.Tensor, torch.Tensor]

run = Run(
    __doc__,
    **{"tp": 1, "pp": 1, "ep": 1, "vpp": 0, "sequence_parallel": 0},
    **{"experts": 0, "capacity": 0, "distributed_optimizer": 0, "buckets": 0, "bf16": 0},
    layers=0,
)
options = run.options
torch_xla_cc.install()  # on gloo too: torch_xla replaces new_group when it is imported
megatron.install(run.device)
parallel_state.initialize_model_parallel(
    tensor_model_parallel_size=options.tp,
    pipeline_model_parallel_size=options.pp,
    virtual_pipeline_model_parallel_size=options.vpp or None,
    expert_model_parallel_size=options.ep,
    create_gloo_process_groups=False,
)
tensor_parallel.model_parallel_cuda_manual_seed(1)

dtype = torch.bfloat16 if options.bf16 else torch.float32
config = TransformerConfig(
    num_layers=options.layers or 2 * (options.vpp or 1),
    hidden_size=64,
    num_attention_heads=4,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    tensor_model_parallel_size=options.tp,
    pipeline_model_parallel_size=options.pp,
    virtual_pipeline_model_parallel_size=options.vpp or None,
    expert_model_parallel_size=options.ep,
    expert_tensor_parallel_size=1,
    sequence_parallel=bool(options.sequence_parallel),
    num_moe_experts=options.experts or None,
    moe_token_dispatcher_type="alltoall",
    moe_expert_capacity_factor=float(options.capacity) or None,
    moe_pad_expert_input_to_capacity=bool(options.capacity),
    pipeline_dtype=torch.float32,
    bf16=bool(options.bf16),
    params_dtype=dtype,
    use_cpu_initialization=True,
    deallocate_pipeline_outputs=False,
    **megatron.WITHOUT_KERNELS,
)
config.finalize_model_grads_func = finalize_model_grads
torch.manual_seed(1)


def shuffle_experts(model: torch.nn.Module) -> None:
    """Give each rank experts of its own.

    Made on the CPU, those of all ranks are alike. Then it is all one where a token goes, a router's
    gradient is what rounding leaves of 0, and Adam makes steps of it.
    """
    rank = parallel_state.get_expert_model_parallel_rank()
    generator = torch.Generator().manual_seed(rank)
    with torch.no_grad():
        for parameter in model.parameters():
            if not getattr(parameter, "allreduce", True):  # as Megatron-core marks experts
                order = torch.randperm(parameter.numel(), generator=generator)
                parameter.copy_(parameter.flatten()[order].view_as(parameter))


def part(number: int | None) -> DistributedDataParallel:
    """What this stage has of the model: all of it, or one of its virtual stages."""
    virtual = {"ignore_virtual": False, "vp_stage": number}
    model = GPTModel(
        config,
        megatron.local_block(config, vp_stage=number),
        VOCABULARY,
        max_sequence_length=SEQUENCE,
        pre_process=parallel_state.is_pipeline_first_stage(**virtual),
        post_process=parallel_state.is_pipeline_last_stage(**virtual),
        position_embedding_type="rope",
        vp_stage=number,
    )
    shuffle_experts(model)
    model.to(run.device)
    if options.bf16:
        model = Float16Module(config, model)
    settings = DistributedDataParallelConfig(
        use_distributed_optimizer=bool(options.distributed_optimizer),
        overlap_grad_reduce=bool(options.buckets),
        overlap_param_gather=bool(options.buckets and options.distributed_optimizer),
        bucket_size=20_000 if options.buckets else None,
    )
    return DistributedDataParallel(config, settings, model)


parts = [part(number) for number in (range(options.vpp) if options.vpp else [None])]
if options.buckets:
    config.no_sync_func = parts[0].no_sync
settings = OptimizerConfig(
    lr=1e-3,
    bf16=bool(options.bf16),
    params_dtype=dtype,
    use_distributed_optimizer=bool(options.distributed_optimizer),
    overlap_param_gather=bool(options.buckets and options.distributed_optimizer),
)
optimizer = get_megatron_optimizer(settings, parts, use_gloo_process_groups=False)


def batches() -> Iterator[Batch]:
    """The same few, over and over; ranks that share a model have the same."""
    generator = torch.Generator().manual_seed(parallel_state.get_data_parallel_rank())
    shape = (MICRO_BATCHES, MICRO_BATCH, SEQUENCE + 1)
    tokens = torch.randint(VOCABULARY, shape, generator=generator).to(run.device)
    while True:
        for batch in tokens:
            yield batch[:, :-1], batch[:, 1:]


places = torch.arange(SEQUENCE, device=run.device).expand(MICRO_BATCH, -1)
unseen = torch.ones(SEQUENCE, SEQUENCE, device=run.device).triu(1).bool()[None, None]


def mean(loss: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return loss.mean(), {"loss": loss.detach().mean()}


def forward(batch: Iterator[Batch], model: torch.nn.Module) -> tuple[torch.Tensor, partial]:
    tokens, labels = next(batch)
    return model(tokens, places, unseen, labels=labels), partial(mean)


data = [batches() for _ in parts]
for step in run.steps():
    for model in parts:
        model.zero_grad_buffer()
    optimizer.zero_grad()
    losses = get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=data,
        model=parts,
        num_microbatches=MICRO_BATCHES,
        seq_length=SEQUENCE,
        micro_batch_size=MICRO_BATCH,
        forward_only=False,
    )
    optimizer.step()
    if losses:  # on the last stage
        run.say(step, sum(one["loss"].item() for one in losses) / len(losses), rank=-1)
run.end()
