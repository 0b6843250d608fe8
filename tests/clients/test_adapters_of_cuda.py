"""adapters.cuda: seeds, events and files, as programs for CUDA use them."""

import collections
import io
import os
import time
from unittest import mock

import forks
import pytest
import torch
import torch.distributed as dist
import torch_xla
from torch import nn
from torch.utils.data import DataLoader

import torch_xla_cc.distributed  # noqa: F401, the backend
from torch_xla_cc._runtime import device_tensors
from torch_xla_cc.adapters import cuda


@pytest.fixture
def as_cuda():
    cuda.install()
    yield torch_xla.device()
    cuda.uninstall()


def _drawn():
    return nn.functional.dropout(torch.ones(64, device="cuda")).tolist()


@pytest.mark.parametrize(
    "seed",
    [
        torch.manual_seed,
        torch.random.manual_seed,
        lambda seed: torch.cuda.manual_seed(seed),
        lambda seed: torch.cuda.manual_seed_all(seed),
        lambda seed: torch.cuda.random.manual_seed_all(seed),
        lambda seed: torch.cuda.default_generators[0].manual_seed(seed),
    ],
)
def test_seeds(as_cuda, seed):
    seed(3)
    first, second = _drawn(), _drawn()
    seed(3)
    assert [_drawn(), _drawn()] == [first, second]
    seed(4)
    assert _drawn() != first


@pytest.mark.parametrize("seed", [-3, 0, 2**64 - 1, -(2**63), True, 7.9])
def test_a_seed_is_what_torch_takes(as_cuda, seed):
    torch.cuda.manual_seed(seed)
    expected = torch.Generator().manual_seed(int(seed)).initial_seed()
    assert torch.cuda.initial_seed() == expected
    assert torch.xla.get_rng_state() == expected


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_a_seed_that_torch_does_not_take(as_cuda, seed):
    with pytest.raises(RuntimeError, match=r"seed = -?\d+, but it must be from"):
        torch.cuda.manual_seed(seed)


def test_unknown_seeds_and_states_of_all(as_cuda):
    torch.seed()
    (state,) = torch.cuda.get_rng_state_all()
    first = _drawn()
    torch.cuda.seed_all()
    assert torch.cuda.initial_seed() != 0
    assert _drawn() != first
    torch.cuda.set_rng_state_all([state])
    assert _drawn() == first


def test_fork_rng(as_cuda):
    torch.manual_seed(3)
    first, of_cpu = _drawn(), torch.rand(2).tolist()
    torch.manual_seed(3)
    with torch.random.fork_rng():
        torch.manual_seed(4)
        _drawn()
        torch.rand(2)
    assert (_drawn(), torch.rand(2).tolist()) == (first, of_cpu)


@forks.alone
def test_a_seed_waits_for_the_device():
    """On TPU the runtime has to know of the other processes when it starts."""
    with mock.patch.dict("os.environ", WORLD_SIZE="2"), cuda.installed():
        torch.manual_seed(5)
        torch.cuda.manual_seed(3)
        (state,) = torch.cuda.get_rng_state_all()
        with torch.random.fork_rng():
            torch.manual_seed(7)
        assert torch.cuda.initial_seed() == 7
        torch.cuda.set_rng_state_all([])
        torch.cuda.set_rng_state(state)
        assert not torch_xla._XLAC._xla_runtime_is_initialized()
        x = nn.functional.dropout(torch.ones(64).cuda()).tolist()
        torch.manual_seed(3)
        assert nn.functional.dropout(torch.ones(64).cuda()).tolist() == x


@forks.alone
def test_a_world_has_the_seed_that_came_before_it():
    with mock.patch.dict("os.environ", WORLD_SIZE="2"), cuda.installed():
        torch.manual_seed(3)
    dist.init_process_group("xla_cc", store=dist.HashStore(), rank=0, world_size=1)
    x = nn.functional.dropout(torch.ones(64, device=torch_xla.device())).tolist()
    torch_xla.manual_seed(3)
    assert nn.functional.dropout(torch.ones(64, device=torch_xla.device())).tolist() == x


@pytest.mark.parametrize("state", [torch.zeros(16, dtype=torch.uint8), torch.zeros(8)])
def test_states_of_other_devices(as_cuda, state):
    with pytest.raises(RuntimeError, match=r"has \d+ numbers of torch.\w+, but must have 8"):
        torch.cuda.set_rng_state(state)
    with pytest.raises(RuntimeError, match="there are 2 states"):
        torch.cuda.set_rng_state_all([state, state])


class _Seeds(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        torch.manual_seed(i)
        return torch.initial_seed(), torch.rand(1).item(), os.getpid()


@forks.alone
def test_workers_that_were_forked_seed_themselves():
    with cuda.installed():
        state = torch.cuda.get_rng_state()
        found = list(DataLoader(_Seeds(), num_workers=2, timeout=30))
        assert [int(seed) for seed, *_ in found] == [0, 1, 2, 3]
        assert [float(x) for _, x, _ in found] == [
            torch.rand(1, generator=torch.Generator().manual_seed(i)).item() for i in range(4)
        ]
        assert os.getpid() not in [int(pid) for *_, pid in found]
        assert torch.equal(torch.cuda.get_rng_state(), state)


def test_events_know_when_what_is_before_them_has_run(as_cuda):
    start, end, other = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(torch.cuda.Event())
    start.record()
    x = torch.ones(3, device="cuda") * 2
    assert torch.cuda.current_stream().record_event(end) is end
    with pytest.raises(RuntimeError, match=r"Call torch\.cuda\.synchronize"):
        start.elapsed_time(end)
    time.sleep(0.05)
    assert device_tensors.needs_run(x)
    torch.cuda.synchronize()
    assert not device_tensors.needs_run(x)
    time.sleep(0.05)
    other.record()
    first = start.elapsed_time(end)
    assert 50 <= first < 5000
    other.synchronize()
    assert first + 50 <= start.elapsed_time(other) < 5000
    end.record()
    assert end.query() and end.elapsed_time(end) < 5000


def test_events_of_the_cpu():
    with cuda.installed("cpu"):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        end.record()
        torch.cuda.synchronize()
        assert 0 <= start.elapsed_time(end) < 5000
        end.record()
        end.synchronize()
        assert 0 <= start.elapsed_time(end) < 5000


@pytest.mark.parametrize("where", ["cuda", "cuda:0", torch.device("cuda"), "as this"])
@pytest.mark.parametrize("saved", ["cpu", "xla"])
def test_files_are_loaded_onto_the_device(as_cuda, where, saved):
    weight = torch.arange(6.0).reshape(2, 3).to(saved)
    file = io.BytesIO()
    torch.save({"model": [weight, weight], "step": (3, "x", weight.to(torch.bfloat16))}, file)
    file.seek(0)
    where = torch.zeros(1, device="cuda").device if where == "as this" else where
    loaded = torch.load(file, map_location=where, weights_only=True)
    first, second = loaded["model"]
    assert first is second
    assert first.device == as_cuda
    assert first.tolist() == weight.tolist()
    step, x, half = loaded["step"]
    assert (step, x, half.device, half.dtype) == (3, "x", as_cuda, torch.bfloat16)


Pair = collections.namedtuple("Pair", "first second")


class Named(dict):
    """As programs have their own."""


def test_what_a_file_has_is_what_it_was(as_cuda):
    weight = nn.Parameter(torch.ones(2, 3))
    weight.partition_dim = 1
    frozen = nn.Parameter(torch.ones(3), requires_grad=False)
    tied = nn.Linear(2, 2)
    both = nn.Sequential(tied, nn.Linear(2, 2))
    both[1].weight = tied.weight
    leaf = torch.ones(4, requires_grad=True)
    everything = {
        "parameters": Named(weight=weight, frozen=frozen),
        "pair": Pair(leaf, [torch.ones(0), torch.ones(2, 0), None]),
        "state": both.state_dict(),
        "module": both,
        "sparse": torch.eye(3).to_sparse(),
        "size": torch.Size([2, 3]),
        "ordered": collections.OrderedDict(x=torch.ones(6).view(2, 3).t()),
    }
    everything["itself"] = []
    everything["itself"].append(everything["itself"])
    file = io.BytesIO()
    torch.save(everything, file)
    file.seek(0)
    loaded = torch.load(file, "cuda", weights_only=False)
    of_loaded = loaded["parameters"]
    assert type(of_loaded) is Named and type(loaded["pair"]) is Pair
    for name, old in everything["parameters"].items():
        new = of_loaded[name]
        assert type(new) is nn.Parameter and new.is_leaf and new.device == as_cuda
        assert (new.requires_grad, new.tolist()) == (old.requires_grad, old.tolist())
    assert of_loaded["weight"].partition_dim == 1
    assert loaded["pair"].first.is_leaf and loaded["pair"].first.requires_grad
    assert [None if x is None else x.device for x in loaded["pair"].second] == [
        *[as_cuda] * 2,
        None,
    ]
    state = loaded["state"]
    assert state._metadata == everything["state"]._metadata
    assert torch_xla._XLAC._xla_get_tensor_id(state["0.weight"]) == (
        torch_xla._XLAC._xla_get_tensor_id(state["1.weight"])
    )
    assert loaded["module"][1].weight is loaded["module"][0].weight
    assert loaded["module"][0].weight.device == as_cuda
    assert loaded["sparse"].is_sparse and loaded["sparse"].device.type == "cpu"
    assert loaded["ordered"]["x"].shape == (3, 2)
    assert type(loaded["size"]) is torch.Size and loaded["size"] == (2, 3)
    assert loaded["itself"][0] is loaded["itself"]
    torch.optim.SGD([of_loaded["weight"], loaded["pair"].first], lr=0.1)


def test_an_optimizer_that_is_loaded_reads_nothing_of_the_device(as_cuda):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    weights = [nn.Parameter(x.detach().cuda()) for x in model.parameters()]
    resumed = torch.optim.AdamW(weights)
    resumed.load_state_dict(torch.load(file, map_location="cuda", weights_only=True))
    for weight in weights:
        weight.grad = torch.ones_like(weight)
        state = resumed.state[weight]
        assert (state["step"].device.type, state["exp_avg"].device) == ("cpu", as_cuda)
    resumed.step()
    assert all(device_tensors.needs_run(weight) for weight in weights)


def test_other_places_and_whole_modules(as_cuda):
    file = io.BytesIO()
    model = nn.Linear(2, 2)
    torch.save(model, file)
    for places in ("cuda",), (), ("cpu",), (lambda storage, location: storage,), (None,):
        file.seek(0)
        loaded = torch.load(file, *places, weights_only=False)
        assert loaded.weight.device == (as_cuda if places == ("cuda",) else torch.device("cpu"))
        assert loaded.weight.tolist() == model.weight.tolist()
