"""What the adapters change, and that they leave nothing behind."""

import sys
from unittest import mock

import forks
import pytest
import torch
import torch_xla
import torch_xla.debug.metrics as metrics
from torch import nn
from torch.utils import checkpoint

from torch_xla_cc._runtime import device_tensors
from torch_xla_cc.adapters import cuda, megatron, optimizers
from torch_xla_cc.adapters._masks import FilledMasks


@pytest.fixture
def as_cuda():
    cuda.install()
    yield torch_xla.device()
    cuda.uninstall()


def test_cuda_is_this_device(as_cuda, monkeypatch):
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # as `import deepspeed` leaves it
    places = [
        torch.zeros(2, device="cuda"),
        torch.zeros(2, device=torch.cuda.current_device()),
        torch.zeros(2, device="cuda:0"),
        torch.zeros(2).cuda(),
        torch.zeros(2).to("cuda"),
        torch.zeros(2).to(device="cuda", dtype=torch.float64),
        torch.empty_like(torch.zeros(2), device="cuda"),
        nn.Linear(2, 2).cuda().weight,
        nn.Linear(2, 2, device="cuda").weight,
        torch.zeros(2).to(torch.device("cuda", 0)),
        torch.zeros(2, device=torch.device("cuda", index=0)),
        torch.zeros(2, device=torch.device(type="cuda", index=0)),
    ]
    assert {x.device for x in places} == {as_cuda}
    assert places[0].type() == "torch.cuda.FloatTensor"
    assert torch.zeros(2).device.type == torch.device("cpu", 0).type == "cpu"
    assert places[0].is_cuda and not torch.zeros(2).is_cuda
    assert not torch.cuda.is_available() and not torch.cuda.is_current_stream_capturing()


@forks.alone
def test_cuda_starts_no_runtime_before_there_is_a_world():
    """Which on TPU would then know of no other process."""
    with mock.patch.dict("os.environ", WORLD_SIZE="2"), cuda.installed():
        torch.cuda.set_device(torch.device("cuda"))
        assert not torch_xla._XLAC._xla_runtime_is_initialized()
        x = torch.zeros(2, device="cuda")
        assert torch_xla._XLAC._xla_runtime_is_initialized()
    assert x.device == torch_xla.device()


@forks.alone
def test_cuda_in_a_backward_pass():
    class MakesOne(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad + torch.ones(2, device="cuda")

    with cuda.installed():
        x = torch.zeros(2, device="cuda", requires_grad=True)
        MakesOne.apply(x).sum().backward()
        assert x.grad.tolist() == [2, 2]


def test_cuda_streams_and_random_numbers(as_cuda):
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):
        event.record(stream)
        torch.cuda.current_stream().wait_stream(stream)
        torch.zeros(1, device="cuda").record_stream(stream)
    assert event.query() and stream.query()
    torch.cuda.manual_seed(3)
    state = torch.cuda.get_rng_state()
    first = torch.rand(4, device="cuda").tolist()
    torch.cuda.set_rng_state(state)
    assert torch.rand(4, device="cuda").tolist() == first


def test_to_synchronize_runs_what_is_pending_and_is_no_step(as_cuda):
    drawn = []
    for synchronizes in False, True:
        torch.cuda.manual_seed(3)
        x = torch.rand(4, device="cuda")
        y = x * 2
        if synchronizes:
            torch.cuda.synchronize()
            assert not device_tensors.needs_run(y)
        drawn.append([x.tolist(), torch.rand(4, device="cuda").tolist()])
    assert drawn[0] == drawn[1]


@forks.alone
def test_layers_that_are_computed_again_draw_the_same():
    for reentrant in False, True:
        drawn = []

        def layer(x, drawn=drawn):
            drawn.append(torch.nn.functional.dropout(x))
            return drawn[-1] * x

        with cuda.installed():
            x = torch.ones(64, device="cuda", requires_grad=True)
            checkpoint.checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
            first, second = (y.tolist() for y in drawn)
            assert first == second
            assert x.grad.tolist() == [2 * one for one in first]


def test_cuda_may_be_the_cpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "not_to_be_imported", None)
    cuda.install("cpu")
    try:
        assert torch.zeros(1).cuda().device.type == "cpu"
        assert torch.zeros(1, device="cuda").type() == "torch.cuda.FloatTensor"
        with pytest.raises(RuntimeError, match="is installed already"):
            cuda.install()
    finally:
        cuda.uninstall()


def test_nothing_is_left():
    names = [name for name in vars(torch.cuda) if not name.startswith("__")]
    before = {name: getattr(torch.cuda, name) for name in names}
    of_random, apply = vars(torch.cuda.random).copy(), nn.Module._apply
    megatron.install()
    assert torch.cuda.current_device() == 0
    megatron.uninstall()
    assert {name: getattr(torch.cuda, name) for name in names} == before
    assert vars(torch.cuda.random) == of_random
    assert nn.Module._apply is apply
    assert "record_stream" not in vars(torch.Tensor)
    with pytest.raises((RuntimeError, AssertionError), match=r"CUDA|NVIDIA"):
        torch.zeros(1, device="cuda")


def test_parameters_keep_what_is_known_of_them(as_cuda):
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    first.weight.partition_dim = 1
    weights = [first.weight, first.bias, second.bias]  # as an optimizer has them
    model = nn.Sequential(first, nn.Sequential(second)).cuda()
    assert first.weight.device == as_cuda
    assert first.weight.partition_dim == 1
    assert second.weight is first.weight
    assert first.bias is not second.bias
    assert [id(x) for x in model.parameters()] == [id(x) for x in weights]


@forks.alone
def test_masks_are_not_read():
    megatron.install()
    try:
        x = torch.arange(6.0).reshape(2, 3).to(torch_xla.device()).requires_grad_()
        y = x * 2
        rows, each = torch.tensor([True, False]).to(x.device), x.detach() > 3
        torch_xla.sync(wait=True)  # or it is counted later
        before = metrics.counter_value("ExecuteComputation")
        y[rows] = -1
        y[each] = 0.5
        y[rows, :] = y[rows, ...] = 7
        y.sum().backward()
        assert metrics.counter_value("ExecuteComputation") == before
        assert y.tolist() == [[7, 7, 7], [6, 0.5, 0.5]]
        assert x.grad.tolist() == [[0, 0, 0], [2, 0, 0]]
    finally:
        megatron.uninstall()


@forks.alone
def test_masks_that_torch_refuses():
    device = torch_xla.device()
    numbers = torch.zeros(4, 3, dtype=torch.int64, device=device)
    mask = torch.ones(4, dtype=torch.bool)
    for index, value in (
        (mask[:1].to(device), 1),
        (mask.reshape(4, 1).to(device), 1),
        ((mask.to(device), slice(None), slice(None)), 1),
        (mask.to(device), float("inf")),
        (mask.to(device), 2**70),
    ):
        with FilledMasks(), pytest.raises((IndexError, RuntimeError, ValueError)):
            numbers[index] = value
    with FilledMasks():
        numbers[mask] = 2.5  # on the host
    assert numbers.tolist() == [[2] * 3] * 4


def _compiled_by_the_last(steps: int) -> int:
    model = nn.Linear(3, 3).to(torch_xla.device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 3, device=torch_xla.device())
    for step in range(3 + steps):
        if step == 3:  # the first differ: there are no gradients yet
            before = metrics.counter_value("UncachedCompile") or 0
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
    return (metrics.counter_value("UncachedCompile") or 0) - before


@forks.alone
def test_an_optimizer_ends_a_step():
    assert _compiled_by_the_last(4) >= 4  # each graph begins with those before it
    optimizers.install()
    try:
        optimizers.install()  # once is enough
        assert _compiled_by_the_last(4) == 0
    finally:
        optimizers.uninstall()
    assert _compiled_by_the_last(5) >= 1  # as far as they are in the cache by now
