"""Programs of training, written once for PyTorch and for JAX: what a rank computes of its shards.

`ops` are the collectives and the few functions that have other names there. Axes of ranks: "all",
"model" (neighbours), "data" (the others).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

WIDTH, INNER, HEADS, TOKENS, LAYERS, STEPS = 2048, 8192, 16, 2048, 4, 4
Shape = tuple[int, ...]


class Program(NamedTuple):
    name: str
    shapes: Callable[[int, int], list[Shape]]  # of parameters and x, by ranks in all and of "model"
    loss: Callable[..., Any]  # of ops and those


def _mlp(ops: Any, x: Any, weights: Sequence[Any]) -> Any:
    for weight in weights:
        x = ops.relu(x @ weight)
    return x


def _attention(ops: Any, x: Any, qkv: Any, out: Any) -> Any:
    heads = out.shape[0] * HEADS // WIDTH
    size = WIDTH // HEADS
    tokens = x.shape[0]
    q, k, v = (part.reshape(tokens, heads, size) for part in ops.split3(x @ qkv))
    scores = ops.softmax(ops.einsum("qhd,khd->hqk", q, k))
    return ops.einsum("hqk,khd->qhd", scores, v).reshape(tokens, heads * size) @ out


def data_parallel(ops: Any, *given: Any) -> Any:
    *weights, x = given
    return ops.total(_mlp(ops, x, [ops.copy(weight, "all") for weight in weights]))


def fsdp_mlp(ops: Any, *given: Any) -> Any:
    *shards, x = given
    for shard in shards:
        x = ops.relu(x @ ops.gather(shard, "all"))
    return ops.total(x)


def _layer_shapes(ranks: int) -> list[Shape]:
    """Rows of the weights of a transformer layer: of qkv, out, up, down."""
    return [
        *((WIDTH // ranks, 3 * WIDTH), (WIDTH // ranks, WIDTH)),
        *((WIDTH // ranks, INNER), (INNER // ranks, WIDTH)),
    ]


def fsdp_layer(ops: Any, *given: Any) -> Any:
    *shards, x = given
    qkv, out, up, down = (ops.gather(shard, "all") for shard in shards)
    x = x + _attention(ops, x, qkv, out)
    return ops.total(x + ops.relu(x @ up) @ down)


def _tensor_shapes(model: int) -> list[Shape]:
    return [
        *((WIDTH, 3 * WIDTH // model), (WIDTH // model, WIDTH)),
        *((WIDTH, INNER // model), (INNER // model, WIDTH)),
    ]


def tensor_parallel(ops: Any, *given: Any) -> Any:
    qkv, out, up, down, x = given
    x = x + ops.reduce(_attention(ops, ops.copy(x, "model"), qkv, out), "model")
    y = ops.relu(ops.copy(x, "model") @ up) @ down
    return ops.total(x + ops.reduce(y, "model"))


def sequence_parallel(ops: Any, *given: Any) -> Any:
    qkv, out, up, down, x = given
    x = x + ops.scatter(_attention(ops, ops.gather(x, "model"), qkv, out), "model")
    y = ops.relu(ops.gather(x, "model") @ up) @ down
    return ops.total(x + ops.scatter(y, "model"))


def experts(ops: Any, *given: Any) -> Any:
    """An expert a rank of "model", to which each rank sends as many rows."""
    up, down, x = given
    rows = ops.exchange(x, "model")
    return ops.total(x + ops.exchange(ops.relu(rows @ up) @ down, "model"))


def pipeline(ops: Any, *given: Any) -> Any:
    """Microbatches that go on from stage to stage."""
    weight, *batches = given
    total = 0
    x = batches[0]
    for batch in batches[1:]:
        x = ops.shift(ops.relu(x @ weight), "model") + batch
        total = total + ops.total(x)
    return total


_ROWS = TOKENS // 8
PROGRAMS = [
    Program(
        "data parallel",
        lambda n, m: [*[(WIDTH, WIDTH)] * LAYERS, (_ROWS, WIDTH)],
        data_parallel,
    ),
    Program("FSDP, MLP", lambda n, m: [(WIDTH // n, WIDTH)] * LAYERS + [(_ROWS, WIDTH)], fsdp_mlp),
    Program("FSDP, a layer", lambda n, m: [*_layer_shapes(n), (_ROWS, WIDTH)], fsdp_layer),
    Program("tensor parallel", lambda n, m: [*_tensor_shapes(m), (TOKENS, WIDTH)], tensor_parallel),
    Program(
        "tensor, sequence parallel",
        lambda n, m: [*_tensor_shapes(m), (TOKENS // m, WIDTH)],
        sequence_parallel,
    ),
    Program("experts", lambda n, m: [(WIDTH, INNER), (INNER, WIDTH), (TOKENS, WIDTH)], experts),
    Program("pipeline", lambda n, m: [(WIDTH, WIDTH), *[(_ROWS, WIDTH)] * (STEPS + 1)], pipeline),
]


def mesh(target: str) -> tuple[int, int]:
    """Ranks in all, and of "model": those along the first axis of a TPU."""
    topology = target.rpartition(":")[2]
    if "x" not in topology or topology[0] == "h":
        return 8, 4
    dims = [int(size) for size in topology.split("x")]
    ranks = 1
    for size in dims:
        ranks *= size
    return ranks, dims[0] if dims[0] > 2 else dims[1]
