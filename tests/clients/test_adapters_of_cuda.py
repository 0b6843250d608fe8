"""adapters.cuda: seeds, events and files, as programs for CUDA use them."""

import io
import os
import time
from unittest import mock

import forks
import pytest
import torch
import torch_xla
from torch import nn
from torch.utils.data import DataLoader

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
    with pytest.raises(RuntimeError, match=r"seed = -?\d+, but it must be in"):
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
        assert not torch_xla._XLAC._xla_runtime_is_initialized()
        x = nn.functional.dropout(torch.ones(64).cuda()).tolist()
        torch.manual_seed(3)
        assert nn.functional.dropout(torch.ones(64).cuda()).tolist() == x


class _Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.initial_seed() * 0 + i, os.getpid()


@forks.alone
def test_workers_that_were_forked_seed_themselves():
    with cuda.installed():
        state = torch.cuda.get_rng_state()
        found = list(DataLoader(_Rows(), num_workers=2, timeout=30))
        assert [int(i) for i, _ in found] == [0, 1, 2, 3]
        assert os.getpid() not in [int(pid) for _, pid in found]
        assert torch.equal(torch.cuda.get_rng_state(), state)


def test_events_know_the_time(as_cuda):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="must be recorded"):
        start.elapsed_time(end)
    start.record()
    time.sleep(0.05)
    assert torch.cuda.current_stream().record_event(end) is end
    assert 50 <= start.elapsed_time(end) < 5000
    assert end.elapsed_time(start) < 0


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


def test_other_places_and_whole_modules(as_cuda):
    file = io.BytesIO()
    model = nn.Linear(2, 2)
    torch.save(model, file)
    for places in ("cuda",), (), ("cpu",), (lambda storage, location: storage,), (None,):
        file.seek(0)
        loaded = torch.load(file, *places, weights_only=False)
        assert loaded.weight.device == (as_cuda if places == ("cuda",) else torch.device("cpu"))
        assert loaded.weight.tolist() == model.weight.tolist()
