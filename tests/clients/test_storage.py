"""Tensors that are freed and come back, and views of them."""

import pytest
import torch
import torch_xla

from torch_xla_cc.adapters import _storage


def on_device(values):
    return torch.tensor(values).to(torch_xla.device())


def test_views_of_what_is_freed_have_no_values():
    whole = on_device([float(x) for x in range(12)])
    first, second = (part.view(2, 3) for part in whole.split([6, 6]))
    _storage.free(whole)
    _storage.follow(first, second, whole)
    for x in (first, second):
        assert x.device.type == "meta"
        assert (x.shape, x.stride(), x.dtype) == ((2, 3), (3, 1), torch.float32)
        assert _storage.is_free(x)
    with pytest.raises(NotImplementedError, match="no data"):
        first.cpu()


def test_no_operator_makes_views_of_what_is_freed():
    whole = on_device([0.0] * 12)
    views = whole.split([1, 2, 9])
    _storage.free(whole)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        _storage.follow(*views)
        assert all(view.device.type == "meta" for view in views)
        torch.ones(2).add(1)  # which the profiler sees
    names = {event.name for event in profiled.events()}
    assert "aten::add" in names
    assert not {name for name in names if name.startswith("aten::split")}


def test_views_have_the_values_that_come_back():
    whole = on_device([1.0, 2.0, 3.0, 4.0])
    first, second = whole.split([1, 3])
    column = whole.as_strided((2, 1), (2, 1))
    for values in ([5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]):
        _storage.free(whole)
        _storage.follow(first, column)  # and the other not
        _storage.alloc(whole)
        whole.copy_(on_device(values))
        assert first.tolist() == values[:1]
        assert second.tolist() == values[1:]
        assert column.tolist() == [values[:1], values[2:3]]


def test_a_write_to_a_view_is_not_lost():
    whole = on_device([1.0, 2.0, 3.0, 4.0])
    first, second = whole.split(2)
    first.add_(10)
    _storage.follow(first, second)
    assert whole.tolist() == [11.0, 12.0, 3.0, 4.0]
    _storage.free(whole)
    _storage.follow(first, second)
    _storage.alloc(whole)
    whole.zero_()
    second.add_(1)
    assert (whole.tolist(), first.tolist()) == ([0.0, 0.0, 1.0, 1.0], [0.0, 0.0])


def test_what_is_no_view_stays():
    plain, own = torch.ones(2), on_device([1.0])
    _storage.follow(plain, own)
    assert (plain.tolist(), own.tolist()) == ([1.0, 1.0], [1.0])
    assert not _storage.is_free(own)
