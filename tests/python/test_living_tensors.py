"""The tensors that Python knows, while other threads free some."""

import threading
import time
import warnings

import torch
import torch_xla

from torch_xla_cc import _C

SECONDS = 2.0


def test_finds_what_is_on_xla_devices():
    device = torch_xla.device()
    made = [
        torch.ones(3, device=device),
        torch.nn.Parameter(torch.ones(2, device=device)),
        torch.ones(4, device=device)[1:],
    ]
    saved = made[1] * 2
    kept = saved.sin()  # for which autograd keeps what it takes
    elsewhere = torch.ones(3)
    found = {id(x) for x in _C.living_tensors()}
    assert {id(x) for x in (*made, saved)} <= found and id(elsewhere) not in found

    address = id(saved)
    del saved
    # Of this one only C++ has a reference; who looks has another, and it lives on.
    [again] = [x for x in _C.living_tensors() if id(x) == address]
    assert again.shape == (2,)
    del again
    kept.sum().backward()
    assert made[1].grad is not None


def test_others_free_some_meanwhile():
    """By gc.get_objects() torch warned of tensors that were freed while Python had them."""
    weight = torch.ones(3, 3, device=torch_xla.device(), requires_grad=True)
    end = time.monotonic() + SECONDS

    def work():
        while time.monotonic() < end:
            y = weight
            for _ in range(20):
                y = (y * 0.5).sin()
            total = y.sum()
            del y
            total.backward()  # frees what was saved, without the interpreter lock
            weight.grad = None

    thread = threading.Thread(target=work)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thread.start()
        looked = 0
        while thread.is_alive():
            looked += len([x.shape for x in _C.living_tensors()]) > 0
        thread.join()
    assert looked > 0
    assert not [str(one.message) for one in caught if "Deallocating" in str(one.message)]
