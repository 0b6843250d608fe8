"""regions in steps: what the compilers of TPU and GPU make of them, beside the plain forms."""

import overlapping
import pytest
import torch
import torch_xla

from torch_xla_cc import _aot, regions
from torch_xla_cc._inspect import trace

pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")

ROWS, WIDTH, INNER = 256, 2048, 1024
V5E, GPU = "tpu:v5e:2x4", "gpu:h100x8"
# All were looked at with eight chips, which takes a minute each; a ring of four has all its parts.
TARGETS = [V5E, "tpu:v4:2x2x1", "tpu:v5p:2x2x1", "tpu:v6e:2x2", GPU]
GPU_OPTIONS = {"xla_gpu_enable_latency_hiding_scheduler": True}
BLOCK = ROWS * WIDTH * 2  # bytes


def plain_gather(x, weight):
    return regions.gather_from_sequence(x) @ weight


def plain_scatter(x, weight):
    return regions.reduce_scatter_to_sequence(x @ weight)


STEPS = regions.all_gather_matmul, regions.matmul_reduce_scatter
PLAIN = plain_gather, plain_scatter


def programs(target, forms, options=None):
    """A layer's forward pass, and its gradients, compiled."""
    shapes = ((ROWS, WIDTH), (WIDTH, INNER), (INNER, WIDTH))
    x, up, down = (torch.zeros(shape, dtype=torch.bfloat16, device="xla") for shape in shapes)
    for one in (x, up, down):
        one.requires_grad_()
    torch_xla.sync()
    gather, scatter = forms

    def forward():
        return scatter(gather(x, up).relu(), down)

    def gradients():
        return torch.autograd.grad(forward().float().pow(2).sum(), (x, up, down))

    traced = [trace.of_call("layer", one, target, None).module for one in (forward, gradients)]
    made = _aot.compile_many(traced, target, options=options)
    for one in made:
        if isinstance(one, _aot.CompilerError):
            raise one
    return made


def waiting(program, ranks):
    """Bytes that come to a rank while it does not multiply."""
    return sum(one.bytes for one in overlapping.found(program, ranks) if not one.beside)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_waits(target):
    if target == GPU:
        pytest.importorskip("jax_plugins.xla_cuda12", reason="pip install 'torch_xla_cc[aot-gpu]'")
    ranks = _aot.parse_target(target).devices
    forward, gradients = programs(target, STEPS, GPU_OPTIONS if target == GPU else None)
    found = overlapping.found(forward, ranks)
    assert [one.opcode for one in found] == ["collective-permute"] * 2 * (ranks - 1)
    # As many bytes as a gather and a reduce-scatter.
    assert sum(one.bytes for one in found) == 2 * (ranks - 1) * BLOCK
    # The last step's permute of a GPU may have nothing left to run beside.
    allowed = 2 * BLOCK if target == GPU else 0
    assert waiting(forward, ranks) <= allowed
    assert waiting(gradients, ranks) <= 2 * allowed
    # Blocks are found by dynamic slices: those of index_select and index_copy are slow.
    opcodes = {one.opcode for program in (forward, gradients) for one in program.instructions()}
    assert not opcodes & {"gather", "scatter"}


@pytest.mark.parametrize("target", [V5E, GPU])
def test_the_plain_form_waits(target):
    """Where it does not any more there is no need for steps: docs/overlap.md."""
    if target == GPU:
        pytest.importorskip("jax_plugins.xla_cuda12", reason="pip install 'torch_xla_cc[aot-gpu]'")
    forward, gradients = programs(target, PLAIN, GPU_OPTIONS if target == GPU else None)
    assert waiting(forward, 8) == 2 * 7 * BLOCK
    assert waiting(gradients, 8) >= 2 * 7 * BLOCK


def test_pairs_of_two_ranks_on_a_gpu():
    pytest.importorskip("jax_plugins.xla_cuda12", reason="pip install 'torch_xla_cc[aot-gpu]'")
    x, up, down = (
        torch.zeros(shape, dtype=torch.bfloat16, device="xla", requires_grad=True)
        for shape in ((ROWS, WIDTH), (WIDTH, INNER), (INNER, WIDTH))
    )
    torch_xla.sync()
    gather, scatter = STEPS
    groups = [[0, 1], [2, 3]]

    def gradients():
        y = scatter(gather(x, up, 0, groups).relu(), down, 0, groups)
        return torch.autograd.grad(y.float().pow(2).sum(), (x, up, down))

    made = _aot.compile_hlo(
        trace.of_call("pairs", gradients, "gpu:h100x4", None).module, "gpu:h100x4"
    )
    assert "collective-permute" in {one.opcode for one in overlapping.found(made, 4)}
