"""torch.distributed on threads and on processes: each call as gloo has it on CPU tensors."""

import functools

import as_tpu
import calls
import pods
import processes
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
        "receives_first",
        "polls",
        "batch",
        "from_anyone",
        "coalesced",
        "asynchronous",
        "views",
        "uneven_lists",
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
CASES["all_reduce AVG"] = (calls.scaled, {"kind": "AVG"})
CASES["all_reduce PREMUL_SUM"] = (calls.scaled, {"kind": "PREMUL_SUM"})
CASES["all_gather_into_tensor stacked"] = (calls.all_gather_into_tensor, {"stacked": True})
CASES["reduce_scatter_tensor stacked"] = (calls.reduce_scatter_tensor, {"stacked": True})
for _dtype, _kinds in calls.OTHER_TYPES.items():
    for _kind in _kinds:
        _fields = {"dtype": _dtype, "kind": _kind}
        CASES[f"reduction_of {_dtype} {_kind}"] = (calls.reduction_of, _fields)


RUN = {"threads": worlds.run, "processes": processes.run, "pod": pods.run, "as on tpu": as_tpu.run}
WHERE = ("threads", "processes", "pod")


def init():
    """Once a process, and once a launch of threads."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")


def all_cases(rank):
    """By name: on the XLA device, and on the CPU. After one that raises, no more."""
    init()
    found = {}
    for name, (function, fields) in CASES.items():
        try:
            ours = function(rank, torch_xla.device(), **fields)
            found[name] = ours, function(rank, "cpu", **fields)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
        # gloo's ranks must not leave while others are in a call; and all stop where one has failed.
        failed = torch.tensor([isinstance(found[name], str)], dtype=torch.int32)
        dist.all_reduce(failed)
        if failed.item():
            break
    return found


@functools.cache
def seen(where, world):
    """What all cases gave, by rank, or raised: one launch, whose ranks meet once."""
    try:
        return RUN[where](world, all_cases, timeout_s=240)
    except BaseException as error:
        return error


def check_same(where, world, name):
    by_rank = seen(where, world)
    if isinstance(by_rank, BaseException):
        raise by_rank
    found = [of_rank.get(name, "an earlier case has failed") for of_rank in by_rank]
    assert not any(isinstance(of_rank, str) for of_rank in found), found
    compare(found)


def compare(by_rank):
    for ours, wanted in by_rank:
        assert len(ours) == len(wanted)
        for x, y in zip(ours, wanted, strict=True):
            assert x.dtype == y.dtype
            assert torch.equal(x, y)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("where", WHERE)
def test_as_gloo(where, world, name):
    check_same(where, world, name)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("world", [2, 4])
def test_as_on_tpu(world, name):
    """With the backend of processes on TPU and GPU, on threads."""
    check_same("as on tpu", world, name)


def call_objects(rank):
    init()
    assert dist.get_rank() == rank
    return calls.objects(rank, torch_xla.device())


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("where", WHERE)
def test_objects(where, world):
    for gathered, lists in RUN[where](world, call_objects):
        assert gathered == [{"rank": i, "text": "x" * i} for i in range(world)]
        assert lists == ["from 0", 0]


def call_alone(rank):
    """Without another backend: objects and barriers have no CPU tensors either."""
    dist.init_process_group("xla_cc")
    assert dist.get_backend() == "xla_cc"
    dist.barrier()
    return calls.objects(rank, torch_xla.device())


def test_alone():
    for gathered, _ in worlds.run(2, call_alone):
        assert gathered == [{"rank": i, "text": "x" * i} for i in range(2)]


def transpose(rank):
    """The example that asked for all_to_all, and its list form with sizes of all kinds."""
    init()
    device = torch_xla.device()
    x = torch.arange(4, device=device) + 4 * rank
    y = torch.empty_like(x)
    dist.all_to_all_single(y, x)
    inputs = [torch.full((rank + to,), float(10 * rank + to), device=device) for to in range(4)]
    outputs = [torch.empty(source + rank, device=device) for source in range(4)]
    dist.all_to_all(outputs, inputs)
    return y.tolist(), [output.tolist() for output in outputs]


@pytest.mark.parametrize("where", WHERE)
def test_the_transpose(where):
    for rank, (column, lists) in enumerate(RUN[where](4, transpose)):
        assert column == [rank, 4 + rank, 8 + rank, 12 + rank]
        assert lists == [[10.0 * source + rank] * (source + rank) for source in range(4)]
