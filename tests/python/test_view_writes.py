"""Writes to views of a tensor: the values are PyTorch's, and what is compiled is linear in size."""

import re

import effort
import numpy as np
import pytest
import torch
import torch_xla
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st

SHAPES = [(7,), (12,), (3, 5), (4, 1, 6), (2, 3, 2, 2)]


@st.composite
def views(draw):
    """A view, as names of methods and their arguments: of the whole, or of another view."""
    shape = draw(st.sampled_from(SHAPES))
    steps = []
    x = torch.empty(shape)
    for _ in range(draw(st.integers(1, 3))):
        if x.dim() == 0:
            break
        dim = draw(st.integers(-x.dim(), x.dim() - 1))
        size = x.size(dim)
        kind = draw(st.sampled_from(("slice", "step", "select", "as_strided", "view", "t")))
        if kind in ("slice", "step"):
            # torch_xla's own slice raises where PyTorch's has another end of nothing.
            bounds = st.none() | st.integers(-size, size)
            start = draw(bounds)
            end = draw(bounds)
            step = (dim, start, end, 1 if kind == "slice" else draw(st.integers(2, 3)))
            kind = "slice"
        elif kind == "select" and size:
            step = (dim, draw(st.integers(-size, size - 1)))
        elif kind == "as_strided" and not steps:
            rows = draw(st.integers(1, 3))
            columns = draw(st.integers(1, x.numel() // rows))
            offset = draw(st.integers(0, x.numel() - rows * columns))
            stride = draw(st.sampled_from([(columns, 1), (1, rows), (0, 1)]))
            if stride == (0, 1):
                rows, stride = 1, (columns + 3, 1)
            step = ((rows, columns), stride, offset)
        elif kind == "view" and x.is_contiguous() and x.numel():
            step = ((-1,),)
        elif kind == "t":
            kind, step = "transpose", (dim, draw(st.integers(-x.dim(), x.dim() - 1)))
        else:
            continue
        steps.append((kind, step))
        x = view(x, [steps[-1]])
    return shape, steps, draw(st.sampled_from(("add_", "copy_", "fill_", "mul_ by itself")))


def view(x, steps):
    for kind, args in steps:
        x = torch.ops.aten.slice(x, *args) if kind == "slice" else getattr(x, kind)(*args)
    return x


def written(device, writes, dtype, keeps):
    """The whole tensors after the writes, and the views that were kept."""
    wholes = {
        shape: torch.arange(int(np.prod(shape))).reshape(shape).to(dtype).to(device)
        for shape in SHAPES
    }
    kept = []
    for number, (shape, steps, how) in enumerate(writes):
        part = view(wholes[shape], steps)
        if how == "add_":
            part.add_(number + 1)
        elif how == "fill_":
            part.fill_(number)
        elif how == "copy_":
            values = torch.arange(part.numel(), dtype=torch.float64).reshape(part.shape)
            part.copy_(values.to(device if number % 2 else "cpu"))
        else:
            part.mul_(part)
        if keeps:
            kept.append(part)
    return [x.cpu().double().numpy().copy() for x in (*wholes.values(), *kept)]


def both(_rank, writes, dtype, keeps):
    return tuple(written(where, writes, dtype, keeps) for where in (torch_xla.device(), "cpu"))


@settings(max_examples=25 * effort.TIMES, deadline=None)
@given(
    st.lists(views(), min_size=1, max_size=6),
    st.sampled_from([torch.float32, torch.int32, torch.bfloat16]),
    st.booleans(),
)
def test_as_on_the_cpu(writes, dtype, keeps):
    ours, wanted = worlds.run(1, both, writes, dtype, keeps)[0]
    for found, one in zip(ours, wanted, strict=True):
        np.testing.assert_array_equal(found, one)


def refusals(_rank):
    said = []
    for device in ("cpu", torch_xla.device()):
        x, part = torch.zeros(4, 3, device=device), torch.ones(2, 3, device=device)
        for call in (
            lambda x=x, part=part: torch.slice_scatter(x, part, 0, 0, 3),
            lambda x=x, part=part: torch.slice_scatter(x, part, 2, 0, 2),
            lambda x=x, part=part: torch.as_strided_scatter(x, part, (3, 2), (2, 1), 0),
            lambda x=x, part=part: torch.as_strided_scatter(x, part, (2, 3), (3, 1), 7),
        ):
            try:
                call().cpu()
                said.append(None)
            except (RuntimeError, IndexError) as error:
                said.append(type(error).__name__)
    return said[:4], said[4:]


def test_what_does_not_fit_is_refused():
    cpu, ours = worlds.run(1, refusals)[0]
    assert None not in cpu
    assert None not in ours


def program(_rank, kind, count, size):
    """Of adding to each of so many views of one buffer, as gradients are summed."""
    device = torch_xla.device()
    buffer = torch.zeros(count * size, device=device)
    views = {
        "slices": [buffer[i * size : (i + 1) * size].view(-1, 4) for i in range(count)],
        "as_strided": [buffer.as_strided((size // 4, 4), (4, 1), i * size) for i in range(count)],
    }[kind]
    added = [torch.ones_like(one) for one in views]
    torch_xla.sync()
    for one, gradient in zip(views, added, strict=True):
        one.add_(gradient)
    text = torch_xla._XLAC._get_xla_tensors_hlo([buffer])
    torch_xla.sync()
    return text, buffer.cpu().sum().item()


@pytest.mark.parametrize("kind", ["slices", "as_strided"])
def test_no_mask_and_no_padding(kind):
    text, total = worlds.run(1, program, kind, 6, 8)[0]
    assert total == 48
    assert not re.findall(r" (select|pad|dynamic-update-slice|scatter)\(", text)
    assert len(re.findall(r" concatenate\(", text)) == 6


def in_autocast(_rank):
    found = []
    with torch.autocast("xla", dtype=torch.bfloat16):
        x = torch.zeros(6, dtype=torch.float16, device=torch_xla.device())
        x[3:5] = torch.ones(2, dtype=torch.float16, device=x.device)
        x.as_strided((2,), (1,), 0).add_(2)
        found.append((str(x.dtype), x.cpu().tolist()))
    return found


def test_autocast_leaves_it_alone():
    assert worlds.run(1, in_autocast)[0] == [("torch.float16", [2, 2, 0, 1, 1, 0])]


def of_views(_rank):
    """as_strided counts from the beginning of what a tensor is a view of."""
    found = []
    for device in ("cpu", torch_xla.device()):
        x = torch.arange(12.0).to(device)
        x.as_strided((2,), (1,), 3).add_(0)  # ours has made it
        wide = torch.arange(4.0).to(device).view(4, 1).expand(4, 3)
        views = (
            x[4:].as_strided((2,), (1,), 1),
            x[4:][2:].as_strided((2,), (1,), 4),
            x[::2].as_strided((4,), (1,)),
            wide.as_strided((4,), (1,)),
        )
        found.append([view.cpu().tolist() for view in views])
    return found


def test_as_strided_of_a_view_reads_from_its_base():
    cpu, ours = worlds.run(1, of_views)[0]
    assert ours == cpu
