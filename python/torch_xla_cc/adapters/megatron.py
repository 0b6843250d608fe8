"""Megatron-core on XLA devices: docs/clients/megatron.md.

Megatron-core runs as it is. What it needs beside torch.distributed:

- it names CUDA where it means the device of the rank: `install()` is that of adapters.cuda;
- it writes to parts of tensors by masks, `x[mask] = 0`, which a lazy device has to read first:
  `install()` makes masked_fill_ of that, on the thread that calls it;
- its layers of plain PyTorch have no norm for sequence parallelism (those are in Apex and
  Transformer Engine): `local_block()` gives layers with `Norm`, for GPTModel's
  `transformer_layer_spec`;
- where a rank's part of the vocabulary begins and ends is a constant of each rank's own: in
  programs it becomes data, so that all ranks have one;
- its optimizer reads the norm of gradients, to clip by it, and counts what tensor parallel ranks
  have alike on the first alone, by a choice of Python: that becomes a part of the step's program
  (adapters._megatron_clip);
- its distributed optimizer steps pieces of parameters, which differ by rank: a rank's part of a
  buffer is stepped as one tensor (adapters._megatron_distributed), and found by a table of ranks
  (adapters._megatron_buffers), so that all ranks have one program;
- stages of a pipeline wait for the device after each batch of messages, for old versions of
  torch's NCCL: they do not, where all messages are of one shape. On the pod these are nodes of the
  graph (adapters.pipelining);
- its router of experts reads a name that only Transformer Engine defines (moe_utils.py:1192 of
  0.16.1): `install()` defines it as None, as the code around it takes it;
- kernels that are not there must be switched off in its configuration: `WITHOUT_KERNELS`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from torch_xla_cc import _C
from torch_xla_cc._runtime.patches import Changes, Patches
from torch_xla_cc.adapters import _megatron_clip, _megatron_distributed, cuda, pipelining
from torch_xla_cc.adapters._masks import FilledMasks
from torch_xla_cc.adapters._rank_numbers import RankNumber

# Of megatron.core.transformer.TransformerConfig: kernels of Apex and Transformer Engine, and
# functions that Megatron-core compiles with torch.compile's default backend, which is for CUDA.
WITHOUT_KERNELS = {
    "apply_rope_fusion": False,
    "bias_activation_fusion": False,
    "bias_dropout_fusion": False,
    "cross_entropy_loss_fusion": False,
    "gradient_accumulation_fusion": False,
    "masked_softmax_fusion": False,
    "persist_layer_norm": False,
}


def _vocabulary_range(
    theirs: Callable[..., Sequence[int]], size: int, rank: int, world_size: int
) -> Sequence[int]:
    """VocabUtility.vocab_range_from_per_partition_vocab_size: from, and up to which word."""
    group = _megatron_clip.tensor_parallel_group()
    if group is None or (group.rank(), group.size()) != (rank, world_size):
        return theirs(size, rank, world_size)
    return RankNumber(group, size), RankNumber(group, size, size)


class _OfGroup(NamedTuple):
    """An optimizer, to ask it what it would do in that tensor parallel group."""

    optimizer: Any
    tp_group: Any

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (the optimizer's)
        return getattr(self.optimizer, name)


def _gradients_for_norm(
    theirs: Callable[[Any], list[torch.Tensor]],
    optimizer: Any,  # noqa: ANN401 (a MegatronOptimizer)
) -> list[torch.Tensor]:
    """MegatronOptimizer.get_main_grads_for_grad_norm."""
    tp_group = getattr(optimizer, "tp_group", None)
    parts = _megatron_distributed.parts_of(optimizer)
    if parts is not None and parts.is_flat:
        return parts.counted(tp_group)
    return _megatron_clip.counted_once(lambda group: theirs(_OfGroup(optimizer, group)), tp_group)


def _communicate(
    theirs: Callable[..., Any],
    communicator: Any,  # noqa: ANN401 (a P2PCommunicator)
    **options: object,
) -> Any:  # noqa: ANN401
    """P2PCommunicator._communicate: both ends of its messages are in it.

    Not where it first sends their shapes, and reads those that come.
    """
    config = communicator.config
    if config.variable_seq_lengths or getattr(config, "mtp_standalone", False):
        return theirs(communicator, **options)
    synchronizes, config.batch_p2p_sync = config.batch_p2p_sync, False
    try:
        with _C.call_mode(messages=True):
            return theirs(communicator, **options)
    finally:
        config.batch_p2p_sync = synchronizes


def _passes(theirs: Callable[..., Any], *, forward_only: bool = False, **options: object) -> Any:  # noqa: ANN401
    """A forward_backward_func of pipelines: as adapters.pipelining has step() of a schedule."""
    pipelining.run_messages()
    result = theirs(forward_only=forward_only, **options)
    if forward_only:
        pipelining.run_messages()
    return result


def _make(changes: Changes, device: torch.device | str | None = None) -> None:
    changes.enter(cuda.patches.held(device))
    moe_utils = importlib.import_module("megatron.core.transformer.moe.moe_utils")
    changes.add(moe_utils, "te_general_gemm", None)
    tensor_parallel = importlib.import_module("megatron.core.tensor_parallel.utils")
    name = "vocab_range_from_per_partition_vocab_size"
    changes.wrap(tensor_parallel.VocabUtility, name, _vocabulary_range)
    optimizer = importlib.import_module("megatron.core.optimizer.optimizer")
    name = "get_main_grads_for_grad_norm"
    changes.wrap(optimizer.MegatronOptimizer, name, _gradients_for_norm)
    p2p = importlib.import_module("megatron.core.pipeline_parallel.p2p_communication")
    changes.wrap(p2p.P2PCommunicator, "_communicate", _communicate)
    schedules = importlib.import_module("megatron.core.pipeline_parallel.schedules")
    for name in ("with_interleaving", "without_interleaving"):
        changes.wrap(schedules, f"forward_backward_pipelining_{name}", _passes)
    _megatron_clip.install(changes)
    _megatron_distributed.install(changes)
    changes.enter(FilledMasks())


# The modes are of the thread that enters them.
_patches = Patches("adapters.megatron", _make, ("megatron-core",), once=True)


def install(device: torch.device | str | None = None) -> None:
    """Have "cuda" be `device`, as adapters.cuda says; this rank's XLA device if None."""
    _patches.install(device)


def uninstall() -> None:
    """Undo install, on the thread that called it."""
    _patches.uninstall()


def installed(
    device: torch.device | str | None = None,
) -> contextlib.AbstractContextManager[None]:
    """install() for a block, of one thread."""
    return _patches.installed(device)


class Norm:
    """LayerNorm or RMSNorm of torch, as Megatron-core's specs take a norm.

    With sequence parallelism each rank sees a part of the sequence. Parameters are marked, so that
    Megatron-core sums their gradients over the tensor parallel ranks.
    """

    def __new__(
        cls,
        config: Any,  # noqa: ANN401 (a TransformerConfig; megatron need not be there to import this)
        hidden_size: int,
        eps: float = 1e-5,
        **_: object,
    ) -> Any:  # noqa: ANN401 (a norm of torch: specs name a class, and build what it gives)
        kinds = {"LayerNorm": torch.nn.LayerNorm, "RMSNorm": torch.nn.RMSNorm}
        if config.normalization not in kinds or config.layernorm_zero_centered_gamma:
            raise ValueError(
                f"adapters.megatron.Norm: config.normalization = {config.normalization!r}, "
                f"layernorm_zero_centered_gamma = {config.layernorm_zero_centered_gamma}, but it "
                f"must be one of {sorted(kinds)}, not zero-centered. Choose one of these, or give "
                "the spec a norm of your own"
            )
        norm = kinds[config.normalization](hidden_size, eps=eps)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return norm


def local_block(config: Any, **options: Any) -> Any:  # noqa: ANN401 (types of Megatron-core)
    """The layers of this pipeline stage, of Megatron-core's own modules, with `Norm`.

    For GPTModel's `transformer_layer_spec`. `options` are those of `get_gpt_decoder_block_spec`.
    """
    from megatron.core.models.gpt.gpt_layer_specs import (  # type: ignore[import-untyped,unused-ignore]
        get_gpt_decoder_block_spec,
    )

    block = get_gpt_decoder_block_spec(config, use_transformer_engine=False, **options)
    for layer in block.layer_specs:
        layer.submodules = dataclasses.replace(
            layer.submodules, input_layernorm=Norm, pre_mlp_layernorm=Norm
        )
    block.layer_norm = Norm
    return block
