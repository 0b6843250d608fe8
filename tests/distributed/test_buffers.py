"""Lists that are views of one buffer: what they give, what is refused, and what a TPU runs."""

import collections

import as_tpu
import buffers
import pods
import processes
import pytest
import torch
import worlds

RUN = {
    "threads": worlds.run,
    "processes": processes.run,
    "as tpu": as_tpu.run,
    "pod": pods.run,
}


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("where", RUN)
def test_gathers(where, world):
    for found in RUN[where](world, buffers.gathers):
        for views, buffer in found:
            for rank, view in enumerate(views):
                assert torch.equal(view, torch.full((2, 3), rank + 1.0))
            assert buffer.sum() == sum(6.0 * (rank + 1) for rank in range(world))


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("where", RUN)
def test_scatters(where, world):
    for found in RUN[where](world, buffers.scatters):
        for output, wanted in found:
            assert torch.equal(output, wanted)


@pytest.mark.parametrize("where", RUN)
def test_in_place(where):
    for lists in RUN[where](3, buffers.in_place):
        assert lists == ([1.0, 1.0, 2.0, 2.0, 3.0, 3.0],) * 2


@pytest.mark.parametrize("where", RUN)
def test_only_some_ranks_have_a_buffer(where):
    for rank, found in enumerate(RUN[where](3, buffers.mixed)):
        for outputs, part in found:
            for source, output in enumerate(outputs):
                assert torch.equal(output, torch.full_like(output, source + 1.0))
            assert torch.equal(part, torch.full_like(part, 3.0 * (rank + 1)))


@pytest.mark.parametrize("where", RUN)
def test_refused(where):
    for found, buffer in RUN[where](2, buffers.refused):
        assert "(D7)" in found["apart"] and "output[0]" in found["apart"]
        assert "at element 0 of its buffer" in found["order"] and "output[1]" in found["order"]
        assert "at element 4" in found["gap"] and "at element 2, behind" in found["gap"]
        assert "one piece of its buffer" in found["strided"]
        assert "(D8)" in found["overlap"] and "at element 1" in found["overlap"]
        assert buffer.tolist() == [1, 1, 0, 0, 1, 1] + [0] * 10


def traced(rank, form):
    """The HLO that one of eight TPU chips would compile for that form."""
    import torch.distributed as dist
    import torch_xla

    import torch_xla_cc
    from torch_xla_cc import _C

    size = 8
    group = dist.ProcessGroup(dist.HashStore(), 0, size)
    backend = _C.paper_backend(
        _C.RankGroup("eight", list(range(size)), list(range(size)), size, 0), 60_000
    )
    group._register_backend(torch.device("xla"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    x = torch.ones(16, 128, device=torch_xla.device())
    buffer = torch.ones(size * 16, 128, device=torch_xla.device())
    torch_xla.sync()
    flat = buffer.view(-1)
    views = [part.view(16, 128) for part in flat.chunk(size)]
    with torch_xla_cc.lowering_for("tpu:v5e:2x4"), torch_xla_cc.distributed.in_graph():
        if form == "all_gather list":
            backend.allgather([views], [x])
        elif form == "all_gather":
            backend._allgather_base(buffer, x)
        elif form == "reduce_scatter list":
            backend.reduce_scatter([x], [views])
        else:
            backend._reduce_scatter_base(x, buffer)
    result = buffer if "gather" in form else x
    module = torch_xla._XLAC._get_xla_tensors_hlo_proto([result])
    torch_xla._XLAC._clear_pending_irs("xla:0")
    return bytes(module)


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_what_a_tpu_runs(op):
    """Of the list no copy, concatenate or slice beyond what the plain form has."""
    from torch_xla_cc import _aot

    counts = []
    for form in (f"{op} list", op):
        (module,) = worlds.run(1, traced, form)
        program = _aot.compile_hlo(module, "tpu:v5e:2x4")
        counts.append(collections.Counter(i.opcode for i in program.instructions()))
    assert counts[0] == counts[1]
    assert counts[0]["concatenate"] == 0


@pytest.mark.parametrize("where", RUN)
def test_alone(where):
    """In a group of one rank too, a result has a buffer of its own."""
    same, more = [0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]
    # What comes from the host is on the first device, which only a process of one may take it for.
    for found in RUN[where](1 if where == "as tpu" else 2, buffers.apart):
        assert found
        for (name, changed), both in found.items():
            assert both == ([same, more] if changed else [more, same]), name


def test_a_copy_has_the_bits_of_any_type():
    assert worlds.run(1, buffers.copies) == [[]]


@pytest.mark.parametrize("where", RUN)
def test_elements_that_are_one(where):
    for errors, buffer, thirds in RUN[where](2, buffers.repeated):
        assert thirds == [[0.0] * 4, [1.0] * 4, [1.0] * 4]
        for name, error in errors.items():
            assert "(D9)" in error and "of which several elements are one" in error, (name, error)
        assert buffer == [1.0, 0.0] * 4
