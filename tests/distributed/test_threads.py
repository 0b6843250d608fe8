"""torch.distributed on ranks that are threads: each call as gloo has it on CPU tensors."""

import calls
import pytest
import torch
import torch.distributed as dist
import torch_xla
import worlds

import torch_xla_cc.distributed  # noqa: F401 (registers xla_cc)

CASES = {
    name: (getattr(calls, name), {})
    for name in (
        "broadcast",
        "all_gather",
        "all_gather_into_views",
        "all_gather_into_tensor",
        "gather",
        "scatter",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "all_to_all_single",
        "all_to_all_split",
        "send_and_recv",
        "subgroups",
    )
}
for _kind in calls.KINDS:
    CASES[f"all_reduce {_kind}"] = (calls.all_reduce, {"kind": _kind, "dtype": torch.int32})
    CASES[f"reduce {_kind}"] = (calls.reduce, {"kind": _kind, "dtype": torch.int32})
for _dtype in (*calls.FLOATS, *calls.INTEGERS):
    CASES[f"all_reduce {_dtype}"] = (calls.all_reduce, {"dtype": _dtype})
    CASES[f"all_gather {_dtype}"] = (calls.all_gather, {"dtype": _dtype})
for _shape in ((), (0,), (1,), (2, 0, 3)):
    CASES[f"all_reduce {_shape}"] = (calls.all_reduce, {"shape": _shape})
    CASES[f"all_gather {_shape}"] = (calls.all_gather, {"shape": _shape})
    CASES[f"broadcast {_shape}"] = (calls.broadcast, {"shape": _shape})
CASES["all_gather_into_tensor stacked"] = (calls.all_gather_into_tensor, {"stacked": True})
CASES["reduce_scatter_tensor stacked"] = (calls.reduce_scatter_tensor, {"stacked": True})


def both(rank, function, fields):
    """On the XLA device, and on the CPU."""
    dist.init_process_group("cpu:gloo,xla:xla_cc")
    try:
        ours = function(rank, torch_xla.device(), **fields)
        wanted = function(rank, "cpu", **fields)
        dist.all_reduce(torch.zeros(1))  # gloo's ranks must not leave while others are in a call
        return ours, wanted
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_as_gloo(world, name):
    function, fields = CASES[name]
    for ours, wanted in worlds.run(world, both, function, fields):
        assert len(ours) == len(wanted)
        for x, y in zip(ours, wanted, strict=True):
            assert x.dtype == y.dtype
            assert torch.equal(x, y)


def call_objects(rank):
    dist.init_process_group("xla_cc")
    assert (dist.get_rank(), dist.get_backend()) == (rank, "xla_cc")
    return calls.objects(rank, torch_xla.device())


@pytest.mark.parametrize("world", [1, 2, 4])
def test_objects(world):
    for gathered, lists in worlds.run(world, call_objects):
        assert gathered == [{"rank": i, "text": "x" * i} for i in range(world)]
        assert lists == ["from 0", 0]
