"""Random models that are split over ranks: by DTensor's plans, in stages, and by Megatron-core.

A recipe is a NamedTuple of plain data. The function of its client makes the model on one kind of
device, trains it, and gives what this rank has of losses, gradients and parameters.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis.strategies as st
import random_layers as layers
import torch
import torch.distributed as dist
import torch_xla
from torch import nn
from torch.distributed import pipelining
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

_YES_NO = st.booleans()
_SEED = st.integers(0, 99)
_UPDATES = st.sampled_from(("SGD", "Adam", "AdamW"))
_STEPS = st.integers(1, 3)


class Tensors(dict[str, torch.Tensor]):
    """What is found, by name."""

    def put(self, name: str, x: torch.Tensor | None) -> None:
        if x is not None:
            x = x.full_tensor() if isinstance(x, DTensor) else x
            self[name] = x.detach().cpu().clone()

    def put_all(self, when: str, module: nn.Module) -> None:
        torch_xla.sync()  # read one by one they may be wrong: tests/python/test_graph_hashes.py
        for name, parameter in module.named_parameters():
            self.put(f"{when}: {name}", parameter)
            self.put(f"{when}: gradient of {name}", parameter.grad)


# Plans of DTensor.


class Split(NamedTuple):
    seed: int
    vocabulary: int
    heads: int  # 0: no attention
    width: int  # of a head
    hidden: list[int]  # by block
    length: int
    batch: int
    bias: bool
    sequence: bool
    normed: bool
    tied: bool
    loss_parallel: bool
    columns_of_embedding: bool
    frozen: bool
    updates: str
    steps: int


def splits(ranks: int) -> st.SearchStrategy[Split]:
    # What ranks have of these, plans of torch take to be the same; of the vocabulary they do not.
    size = st.integers(1, 4).map(lambda n: n * ranks)
    return st.builds(
        Split,
        *(_SEED, st.integers(2, 17), st.sampled_from((0, ranks, 2 * ranks)), st.integers(1, 5)),
        *(st.lists(size, min_size=1, max_size=2), size, st.integers(1, 3)),
        *[_YES_NO] * 7,
        *(_UPDATES, _STEPS),
    )


class Attention(nn.Module):
    def __init__(self, width: int, head: int, bias: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias) for _ in range(4))
        self.head = head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, self.head)).mT for f in (self.q, self.k, self.v))
        weights = torch.softmax(q.movedim(1, -1) @ k.movedim(1, -1).mT, -1)
        return self.out((weights @ v.movedim(1, -1)).movedim(-1, 1).mT.flatten(2))


class Block(nn.Module):
    def __init__(self, recipe: Split, hidden: int) -> None:
        super().__init__()
        width = max(1, recipe.heads) * recipe.width
        self.norm1 = nn.LayerNorm(width) if recipe.normed else nn.Identity()
        self.norm2 = nn.LayerNorm(width) if recipe.normed else nn.Identity()
        if recipe.heads:
            self.attention = Attention(width, recipe.width, recipe.bias)
        self.up, self.down = (
            nn.Linear(width, hidden, recipe.bias),
            nn.Linear(hidden, width, recipe.bias),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if hasattr(self, "attention"):
            x = x + self.attention(self.norm1(x))
        return x + self.down(torch.tanh(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, recipe: Split) -> None:
        super().__init__()
        width = max(1, recipe.heads) * recipe.width
        self.embedding = nn.Embedding(recipe.vocabulary, width)
        self.blocks = nn.Sequential(*(Block(recipe, hidden) for hidden in recipe.hidden))
        self.head = nn.Linear(width, recipe.vocabulary, bias=recipe.bias)
        if recipe.tied:
            self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(x)))


def _plan(recipe: Split) -> dict[str, Any]:
    between = Shard(1) if recipe.sequence else Replicate()
    whole = PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate())
    if recipe.columns_of_embedding and not recipe.tied:
        embedding: Any = ColwiseParallel(output_layouts=between)
    else:
        embedding = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
    last = Shard(-1) if recipe.loss_parallel else Replicate()
    head = ColwiseParallel(input_layouts=between, output_layouts=last, use_local_output=False)
    plan = {"embedding": embedding, "head": head}
    for i in range(len(recipe.hidden)):
        plan |= {
            f"blocks.{i}.up": ColwiseParallel(input_layouts=between),
            f"blocks.{i}.down": RowwiseParallel(output_layouts=between),
        }
        if recipe.heads:
            plan |= {f"blocks.{i}.attention.{name}": ColwiseParallel() for name in "qkv"}
            plan[f"blocks.{i}.attention"] = whole
            plan[f"blocks.{i}.attention.out"] = RowwiseParallel(output_layouts=between)
        if recipe.sequence and recipe.normed:
            plan |= {f"blocks.{i}.norm{n}": SequenceParallel() for n in (1, 2)}
    return plan


def _trained(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: int,
    backward: Callable[[], torch.Tensor],  # which gives the loss
) -> Tensors:
    found = Tensors()
    for step in range(steps):
        optimizer.zero_grad()
        found.put(f"loss {step}", backward())
        found.put_all(f"step {step}", model)
        optimizer.step()
    found.put_all("end", model)
    return found


def split(kind: str, recipe: Split) -> Tensors:
    torch.manual_seed(recipe.seed)
    model = Model(recipe).double().to(kind)
    if recipe.tied:  # the move has made two of it
        model.head.weight = model.embedding.weight
    mesh = layers.mesh(kind, (dist.get_world_size(),))
    parallelize_module(model, mesh, _plan(recipe))
    if recipe.tied:
        model.head.weight = model.embedding.weight
    if recipe.frozen:
        model.blocks[0].up.weight.requires_grad_(False)
    optimizer = getattr(torch.optim, recipe.updates)(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(recipe.seed)
    shape = (recipe.batch, recipe.length)
    words, following = (
        torch.randint(recipe.vocabulary, shape, generator=generator).to(kind) for _ in range(2)
    )

    def backward() -> torch.Tensor:
        with loss_parallel() if recipe.loss_parallel else contextlib.nullcontext():
            logits = model(words).flatten(0, 1)
            if recipe.loss_parallel:
                loss = nn.functional.cross_entropy(logits, following.flatten())
            else:
                loss = nn.functional.cross_entropy(logits.to_local(), following.flatten())
            loss.backward()
        return loss

    return _trained(model, optimizer, recipe.steps, backward)


# Stages.

_OF_ONE = ("GPipe", "1F1B")
_OF_TWO = ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble")  # others hang with gloo


class Stages(NamedTuple):
    seed: int
    schedule: str
    rounds: int  # of microbatches
    rows: int  # of a microbatch
    widths: list[int]
    bias: bool
    frozen: bool
    updates: str
    steps: int


def stages(ranks: int) -> st.SearchStrategy[Stages]:
    def of(schedule: str) -> st.SearchStrategy[Stages]:
        count = ranks * (1 if schedule in _OF_ONE else 2)
        widths = st.lists(st.integers(1, 7), min_size=count + 1, max_size=count + 1)
        rounds = st.integers(1, 3)
        options = (_YES_NO, _YES_NO, _UPDATES, _STEPS)
        return st.builds(
            Stages, _SEED, st.just(schedule), rounds, st.integers(1, 3), widths, *options
        )

    return st.sampled_from((*_OF_ONE, *(_OF_TWO if ranks > 1 else ()))).flatmap(of)


def in_stages(kind: str, recipe: Stages) -> Tensors:
    from torch_xla_cc.adapters import pipelining as adapter

    with adapter.installed():
        return _in_stages(kind, recipe)


def _in_stages(kind: str, recipe: Stages) -> Tensors:
    torch.manual_seed(recipe.seed)
    rank, ranks, count = dist.get_rank(), dist.get_world_size(), len(recipe.widths) - 1
    whole = [
        nn.Sequential(nn.Linear(*recipe.widths[i : i + 2], bias=recipe.bias), nn.Tanh()).double()
        for i in range(count)
    ]
    if recipe.frozen and count > 1:
        whole[1][0].weight.requires_grad_(False)
    mine = [rank] if count == ranks else [rank, rank + ranks]
    own = [whole[i].to(kind) for i in mine]
    parts = [
        pipelining.PipelineStage(module, i, count, torch.device(kind))
        for i, module in zip(mine, own, strict=True)
    ]
    microbatches = ranks + recipe.rounds - 1 if count == ranks else recipe.rounds * ranks
    make = getattr(pipelining, f"Schedule{recipe.schedule}")
    schedule = make(
        parts[0] if recipe.schedule in _OF_ONE else parts,
        n_microbatches=microbatches,
        loss_fn=nn.functional.mse_loss,
    )
    x = layers.numbers(recipe.seed, recipe.rows * microbatches, recipe.widths[0]).to(kind)
    y = layers.numbers(recipe.seed + 1, recipe.rows * microbatches, recipe.widths[-1]).to(kind)
    optimizers = [getattr(torch.optim, recipe.updates)(m.parameters(), lr=0.05) for m in own]
    found = Tensors()
    for step in range(recipe.steps):
        losses: list[torch.Tensor] = []
        for module in own:
            module.zero_grad()
        last = {"target": y, "losses": losses} if count - 1 in mine else {}
        schedule.step(*([x] if 0 in mine else []), **last)
        for i, loss in enumerate(losses):
            found.put(f"loss {step} {i}", loss)
        for i, module in zip(mine, own, strict=True):
            found.put_all(f"step {step}, stage {i}", module)
        for optimizer in optimizers:
            optimizer.step()
    return found


check_splits = functools.partial(layers.compare, model=split)
check_stages = functools.partial(layers.compare, model=in_stages)


# Layers of Megatron-core.


class Linears(NamedTuple):
    seed: int
    vocabulary: int  # of a rank
    width: int
    hidden: int  # of a rank
    length: int  # of a rank
    batch: int
    bias: bool
    sequence: bool
    gathered: bool  # between the two, which then split it again
    smoothed: bool
    frozen: bool
    updates: str
    steps: int


def linears(ranks: int) -> st.SearchStrategy[Linears]:
    sizes = [st.integers(1, 5)] * 5
    return st.builds(Linears, _SEED, *sizes, *[_YES_NO] * 5, _UPDATES, _STEPS)


class OfMegatron(nn.Module):
    """Embedding, two linear layers, logits: the first split by words, by columns and by rows."""

    def __init__(self, recipe: Linears, ranks: int) -> None:
        super().__init__()
        from megatron.core import ModelParallelConfig, tensor_parallel

        sequence = recipe.sequence and ranks > 1  # its own rule
        config = ModelParallelConfig(
            tensor_model_parallel_size=ranks,
            sequence_parallel=sequence,
            use_cpu_initialization=True,
            params_dtype=torch.float64,
            gradient_accumulation_fusion=False,
        )
        self.sequence, self.smoothing = sequence, 0.1 * recipe.smoothed
        gathered = recipe.gathered and not sequence
        # Logits near each other: XLA has no numbers below 1e-38, and docs/clients/megatron.md says
        # what follows for smoothed labels.
        init = functools.partial(nn.init.normal_, std=0.5)
        options: Any = {"config": config, "init_method": init}
        words, width, hidden = recipe.vocabulary * ranks, recipe.width, recipe.hidden * ranks
        self.embedding = tensor_parallel.VocabParallelEmbedding(
            words, width, reduce_scatter_embeddings=sequence, **options
        )
        self.up = tensor_parallel.ColumnParallelLinear(
            width, hidden, bias=recipe.bias, gather_output=gathered, **options
        )
        self.down = tensor_parallel.RowParallelLinear(
            *(hidden, width),
            bias=recipe.bias,
            input_is_parallel=not gathered,
            skip_bias_add=False,
            **options,
        )
        self.logits = tensor_parallel.ColumnParallelLinear(width, words, bias=False, **options)
        self.loss = tensor_parallel.vocab_parallel_cross_entropy

    def forward(self, x: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        x = x.transpose(0, 1).contiguous() if not self.sequence else x
        x = x + self.down(torch.tanh(self.up(x)[0]))[0]
        return self.loss(self.logits(x)[0], following.t().contiguous(), self.smoothing).mean()


def of_megatron(kind: str, recipe: Linears) -> Tensors:
    from megatron.core import parallel_state

    from torch_xla_cc.adapters import megatron

    ranks = dist.get_world_size()
    with megatron.installed(kind):
        if not parallel_state.model_parallel_is_initialized():
            parallel_state.initialize_model_parallel(ranks, create_gloo_process_groups=False)
        parallel_state.destroy_global_memory_buffer()  # of the other kind
        parallel_state._set_global_memory_buffer()
        torch.manual_seed(recipe.seed)
        model = OfMegatron(recipe, ranks).to(kind)
        model.up.weight.requires_grad_(not recipe.frozen)
        optimizer = getattr(torch.optim, recipe.updates)(
            [p for p in model.parameters() if p.requires_grad], lr=0.05
        )
        generator = torch.Generator().manual_seed(recipe.seed)
        shape = (recipe.batch, recipe.length * ranks)
        words, following = (
            torch.randint(recipe.vocabulary * ranks, shape, generator=generator).to(kind)
            for _ in range(2)
        )

        def backward() -> torch.Tensor:
            loss = model(words, following)
            loss.backward()
            return loss

        return _trained(model, optimizer, recipe.steps, backward)


check_linears = functools.partial(layers.compare, model=of_megatron)
