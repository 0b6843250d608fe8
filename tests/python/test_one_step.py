"""Steps of several optimizers as one step of the device."""

import threading

import pytest
import torch
import torch_xla
from torch_xla.debug import metrics

from torch_xla_cc._runtime.device_tensors import one_step
from torch_xla_cc.adapters import optimizers


def programs():
    """How many were handed over."""
    return sum(metrics.counter_value(f"{kind}Compile") or 0 for kind in ("Cached", "Uncached"))


def make(count=2):
    """Optimizers, each of a parameter with a gradient."""
    made = []
    for number in range(count):
        parameter = torch.nn.Parameter(torch.full((3,), float(number), device=torch_xla.device()))
        parameter.grad = torch.ones_like(parameter)
        made.append(torch.optim.SGD([parameter], lr=1.0))
    torch_xla.sync()
    return made


def values(made):
    return [one.param_groups[0]["params"][0].tolist() for one in made]


def test_they_end_one_step():
    with optimizers.installed():
        made = make()
        before = programs()
        for one in made:
            one.step()
        assert programs() - before == 2
        with one_step():
            for one in made:
                one.step()
            with one_step():  # one in another is a part of it
                made[0].step()
            assert programs() - before == 2
        assert programs() - before == 3
        assert values(made) == [[-3.0] * 3, [-1.0] * 3]
        assert programs() - before == 3  # what was read was there


def test_nothing_runs_for_optimizers_of_the_cpu_or_for_none():
    with optimizers.installed():
        x = torch.ones(2, device=torch_xla.device()) + 1
        before = programs()
        parameter = torch.nn.Parameter(torch.ones(3))
        parameter.grad = torch.ones(3)
        with one_step():
            torch.optim.SGD([parameter], lr=1.0).step()
        with one_step():
            pass
        assert programs() == before
        assert x.tolist() == [2.0, 2.0]


def test_after_an_error_nothing_is_left():
    with optimizers.installed():
        made = make()
        before = programs()
        with pytest.raises(ValueError, match="in the middle"), one_step():
            made[0].step()
            raise ValueError("in the middle")
        assert programs() == before
        made[1].step()
        assert programs() - before == 1
        assert values(made) == [[-1.0] * 3, [0.0] * 3]


def test_it_is_of_its_thread():
    counts = []

    def other():
        made = make(1)
        before = programs()
        made[0].step()
        counts.append(programs() - before)

    with optimizers.installed(), one_step():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert counts == [1]
