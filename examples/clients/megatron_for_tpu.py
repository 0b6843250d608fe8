"""What a layer of Megatron-core becomes on eight TPU chips, on a machine that has none.

    python examples/clients/megatron_for_tpu.py

One process is one rank of eight, the others do not exist: the layer is traced, and compiled by the
TPU's compiler. Without sequence parallelism there are two all-reduces each way. With it there are
an all-gather and a reduce-scatter in place of each; backward calls two more all-gathers, for the
gradients of the weights, which the compiler merges with those of forward.
"""

from __future__ import annotations

from collections import Counter

import torch
import torch_xla
from megatron.core import parallel_state, tensor_parallel
from megatron.core.transformer.spec_utils import build_module
from megatron.core.transformer.transformer_config import TransformerConfig

import torch_xla_cc
from torch_xla_cc.adapters import megatron
from torch_xla_cc.distributed import paper_world

TARGET, CHIPS = "tpu:v5e:2x4", 8
SEQUENCE, BATCH, FEATURES = 512, 4, 512


def layer_and_inputs(sequence_parallel: bool) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A layer of rank 0, what it takes, and the gradient of what it gives."""
    config = TransformerConfig(
        num_layers=1,
        hidden_size=FEATURES,
        num_attention_heads=8,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        tensor_model_parallel_size=CHIPS,
        sequence_parallel=sequence_parallel,
        bf16=True,
        params_dtype=torch.bfloat16,
        use_cpu_initialization=True,
        **megatron.WITHOUT_KERNELS,
    )
    spec = megatron.local_block(config).layer_specs[0]
    layer = build_module(spec, config=config, layer_number=1)
    shape = (SEQUENCE // CHIPS if sequence_parallel else SEQUENCE, BATCH, FEATURES)
    device = torch_xla.device()
    x = torch.zeros(shape, dtype=torch.bfloat16, device=device, requires_grad=True)
    unseen = torch.ones(SEQUENCE, SEQUENCE, device=device).triu(1).bool()[None, None]
    return layer.bfloat16().to(device), (x, unseen, torch.zeros_like(x))


def forward(
    layer: torch.nn.Module, x: torch.Tensor, unseen: torch.Tensor, _: torch.Tensor
) -> torch.Tensor:
    with torch.no_grad():
        return layer(x, unseen)[0]


def both_ways(
    layer: torch.nn.Module, x: torch.Tensor, unseen: torch.Tensor, gradient: torch.Tensor
) -> torch.Tensor:
    y, _ = layer(x, unseen)
    y.backward(gradient)
    return y


def main() -> None:
    torch_xla_cc.install()
    megatron.install()
    with paper_world(rank=0, world_size=CHIPS):
        parallel_state.initialize_model_parallel(CHIPS, create_gloo_process_groups=False)
        tensor_parallel.model_parallel_cuda_manual_seed(1)
        for sequence_parallel, steps in (
            (
                False,
                (
                    (forward, {"all-reduce": 2}, {"all-reduce": 2}),
                    # The compiler combines two.
                    (both_ways, {"all-reduce": 4}, {"all-reduce": 3}),
                ),
            ),
            (
                True,
                (
                    (forward, *[{"all-gather": 2, "reduce-scatter": 2}] * 2),
                    # It keeps what forward has gathered, and gathers it no second time.
                    (
                        both_ways,
                        {"all-gather": 6, "reduce-scatter": 4},
                        {"all-gather": 4, "reduce-scatter": 4},
                    ),
                ),
            ),
        ):
            layer, inputs = layer_and_inputs(sequence_parallel)
            for step, called, compiled in steps:
                report = torch_xla_cc.assert_lowers_to(
                    step, compiled, layer, *inputs, target=TARGET, timeout_s=600
                )
                calls = Counter(opcode for row in report.rows for opcode in row.before)
                assert calls == called, f"{calls}: expected {called}\n{report.to_text()}"
                print(f"sequence parallelism {'on' if sequence_parallel else 'off'}")
                print(report.to_text())


if __name__ == "__main__":
    main()
