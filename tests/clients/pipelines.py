"""Schedules of torch's pipelines on ranks of the pod; called by test_pipeline.py."""

from __future__ import annotations

import copy

import programs
import torch
import torch.distributed as dist
import torch_xla
from torch import nn
from torch.distributed import pipelining as theirs

import torch_xla_cc.distributed  # noqa: F401 (registers the backend)
from torch_xla_cc.adapters import pipelining

MULTI = ("ScheduleInterleaved1F1B", "ScheduleLoopedBFS", "ScheduleInterleavedZeroBubble")


def _layers(count):
    torch.manual_seed(3)
    return [nn.Sequential(nn.Linear(7, 7), nn.Tanh()) for _ in range(count)]


def _loss(found, wanted):
    return ((found - wanted) ** 2).mean()


def _plain(layers, batches):
    """The losses of the model on the CPU."""
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = _loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [model(x) for x, _ in batches]


def trains(rank, ranks, kind, chunks, steps, evaluations):
    """What differs from the CPU's, programs of the last steps, and of the last evaluations."""
    dist.init_process_group("xla_cc")
    with pipelining.installed():
        try:
            return _trains(rank, ranks, kind, chunks, steps, evaluations)
        finally:
            dist.destroy_process_group()


def _trains(rank, ranks, kind, chunks, steps, evaluations):
    each = 2 if kind in MULTI else 1
    layers = _layers(ranks * each)
    torch.manual_seed(5)
    batches = [(torch.randn(3 * chunks, 7), torch.randn(3 * chunks, 7)) for _ in range(steps)]
    right, outputs = _plain(copy.deepcopy(layers), batches)
    device = torch_xla.device()
    own = [i for i in range(ranks * each) if i % ranks == rank]
    parts = [layers[i].to(device) for i in own]
    stages = [
        theirs.PipelineStage(part, i, ranks * each, device)
        for i, part in zip(own, parts, strict=True)
    ]
    schedule = getattr(theirs, kind)(
        stages if kind in MULTI else stages[0], n_microbatches=chunks, loss_fn=_loss
    )
    optimizer = torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.2)
    wrong, ran, last = [], [], rank == ranks - 1

    def passes(step, x, y):
        losses: list[torch.Tensor] = []
        target = {"target": y.to(device), "losses": losses} if last else {}
        given = (x.to(device),) if rank == 0 else ()
        return step(*given, **target), losses

    for i, (x, y) in enumerate(batches):
        before = programs.ran(), programs.compiled()
        optimizer.zero_grad()
        _, losses = passes(schedule.step, x, y)
        optimizer.step()
        torch_xla.sync()
        if last and abs(torch.stack(losses).mean().item() - right[i]) > 1e-5:
            wrong.append((i, right[i], [loss.item() for loss in losses]))
        ran.append((programs.ran() - before[0], programs.compiled() - before[1]))
    evaluated = []
    for i in range(evaluations):
        x, y = batches[i % steps]
        before = programs.compiled()
        found, _ = passes(schedule.eval, x, y)
        if last and not torch.allclose(found.cpu(), outputs[i % steps], atol=1e-5):
            wrong.append(f"evaluation {i}")
        evaluated.append(programs.compiled() - before)
    return wrong, ran[-2:], evaluated[3:]
