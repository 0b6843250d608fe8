"""Worlds on paper, and what ranks that are processes trace: nobody is met, and nothing runs."""

import processes
import pytest
import torch
import torch.distributed as dist
import torch_xla
from torch.distributed import _functional_collectives as functional

import torch_xla_cc
from torch_xla_cc.distributed import paper_world

TARGET = "tpu:v5e:2x4"


@pytest.fixture
def ranks():
    pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")
    with paper_world(5, 8):
        yield torch.zeros(64, 512, device=torch_xla.device())


def test_each_call_is_what_it_is_on_a_tpu(ranks):
    halves = [dist.new_group([0, 1, 2, 3]), dist.new_group([4, 5, 6, 7])]
    assert dist.get_rank() == 5
    assert dist.get_rank(halves[1]) == 1

    def step():
        whole = torch.empty(512, 512, device=ranks.device)
        dist.all_gather_into_tensor(whole, ranks)
        whole = whole * 2
        work = dist.all_reduce(whole, group=halves[1], async_op=True)
        work.wait()
        dist.barrier()
        part = torch.empty(64, 512, device=ranks.device)
        dist.reduce_scatter_tensor(part, whole)
        return functional.all_gather_tensor(part + 1, 0, dist.group.WORLD)

    report = torch_xla_cc.assert_lowers_to(
        step, {"all-gather": 2, "all-reduce": 1, "reduce-scatter": 1}, target=TARGET
    )
    (reduce,) = [row for row in report.rows if row.after == "all-reduce"]
    assert reduce.groups == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_send_and_recv_go_through_the_host(ranks):
    def step():
        dist.send(ranks, 6)
        dist.recv(ranks, 4)
        return ranks * 2

    report = torch_xla_cc.inspect(step, target=TARGET)
    assert [row.after for row in report.rows] == []
    assert report.counts == {}


def test_nothing_is_called(ranks):
    with pytest.raises(ValueError, match="rank 5 has no peers"):
        dist.all_reduce(ranks)
    with pytest.raises(ValueError, match="rank 5 has no peers"):
        dist.barrier()


def test_the_target_is_of_the_world(ranks):
    with pytest.raises(ValueError, match="has 8 ranks, but the target tpu:v5e:2x2 has 4"):
        torch_xla_cc.inspect(lambda: dist.all_reduce(ranks), target="tpu:v5e:2x2")


def test_split_sizes_are_of_each_rank(ranks):
    def step():
        out = torch.empty(64, 512, device=ranks.device)
        dist.all_to_all_single(out, ranks, [8] * 8, [8] * 8)
        return out

    with pytest.raises(ValueError, match="its own split sizes only"):
        torch_xla_cc.inspect(step, target=TARGET)


@pytest.mark.parametrize(
    ("rank", "size", "named"), [(0, 0, "world_size = 0"), (8, 8, "rank = 8"), (-1, 8, "rank = -1")]
)
def test_no_such_rank(rank, size, named):
    with pytest.raises(ValueError, match=named), paper_world(rank, size):
        pass
    assert not dist.is_initialized()


def test_there_is_one_world(ranks):
    with pytest.raises(RuntimeError, match="has a world already"), paper_world(0, 2):
        pass
    assert dist.get_world_size() == 8


def _inspects(rank):
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    x = torch.full((64, 512), float(rank), device=torch_xla.device())
    counts = {}
    if rank == 2:  # alone: nobody else is asked
        report = torch_xla_cc.inspect(lambda: _sum(x), target="tpu:v5e:2x2")
        counts = dict(report.counts)
    return counts, _sum(x)[0, 0].item()


def _sum(x):
    y = x * 1
    dist.all_reduce(y)
    return y


def test_a_process_traces_alone():
    found = processes.run(4, _inspects, timeout_s=120)
    assert [counts for counts, _ in found] == [{}, {}, {"all-reduce": 1}, {}]
    assert [value for _, value in found] == [6.0] * 4
