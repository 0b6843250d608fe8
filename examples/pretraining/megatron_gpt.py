"""Trains a GPT of Megatron-core of 10 million parameters on bytes: tensor x data parallel.

TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 PJRT_DEVICE=POD \
    torchrun --standalone --nproc-per-node=4 --max-restarts=3 examples/pretraining/megatron_gpt.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import training as shared
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.utils import _pytree as pytree

from torch_xla_cc.adapters import megatron

TENSOR_PARALLEL = int(os.environ.get("TENSOR_PARALLEL", "2"))

run = shared.begin(__doc__)
megatron.install(run.device)
parallel_state.initialize_model_parallel(
    tensor_model_parallel_size=TENSOR_PARALLEL, create_gloo_process_groups=False
)
tensor_parallel.model_parallel_cuda_manual_seed(1)
config = TransformerConfig(
    num_layers=run.layers,
    hidden_size=shared.WIDTH,
    num_attention_heads=shared.HEADS,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    tensor_model_parallel_size=TENSOR_PARALLEL,
    use_cpu_initialization=True,
    **megatron.WITHOUT_KERNELS,
)
config.finalize_model_grads_func = finalize_model_grads
model = DistributedDataParallel(
    config,
    DistributedDataParallelConfig(),
    GPTModel(
        config,
        megatron.local_block(config),
        shared.VOCABULARY,
        max_sequence_length=shared.LENGTH,
        position_embedding_type="rope",
    ).to(run.device),
)
optimizer = get_megatron_optimizer(
    OptimizerConfig(lr=shared.RATE, adam_beta2=0.95, clip_grad=1.0),
    [model],
    use_gloo_process_groups=False,
)
part, parts = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
size = shared.BATCH // parts
places = torch.arange(shared.LENGTH, device=run.device).expand(size, -1)
unseen = torch.ones(shared.LENGTH, shared.LENGTH, device=run.device).triu(1).bool()[None, None]


def mean(loss: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return loss.mean(), {"loss": loss.detach().mean()}


def forward(
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]], model: torch.nn.Module
) -> tuple[torch.Tensor, Any]:
    tokens, labels = next(batches)
    return model(tokens, places, unseen, labels=labels), partial(mean)


def step_once(step: int) -> torch.Tensor:
    batch = tuple(x.to(run.device) for x in shared.batch(step, part, parts))
    for group in optimizer.param_groups:
        group["lr"] = shared.RATE * shared.rate(step, run.steps)
    model.zero_grad_buffer()
    optimizer.zero_grad()
    (losses,) = get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=iter([batch]),
        model=[model],
        num_microbatches=1,
        seq_length=shared.LENGTH,
        micro_batch_size=size,
        forward_only=False,
    )
    total = losses["loss"].clone()
    dist.all_reduce(total, dist.ReduceOp.AVG, group=parallel_state.get_data_parallel_group())
    optimizer.step()
    return total


def _file(folder: Path) -> Path:
    return folder / f"mp_rank_{parallel_state.get_tensor_model_parallel_rank():02d}.pt"


def save(folder: Path) -> None:
    """A file for each tensor parallel rank, as Megatron-LM's own format "torch"."""
    if part == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        cpu = pytree.tree_map_only(torch.Tensor, lambda x: x.detach().cpu(), state)
        torch.save(cpu, _file(folder))


def load(folder: Path) -> None:
    state = torch.load(_file(folder), weights_only=False)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


shared.train(run, step_once, save, load)
