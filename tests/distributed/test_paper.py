"""Dry-run worlds, and what ranks that are processes trace: nobody is met, and nothing runs."""

import processes
import pytest
import torch
import torch.distributed as dist
import torch_xla
import worlds
from torch.distributed import _functional_collectives as functional

import torch_xla_cc
from torch_xla_cc._inspect import trace
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


def test_a_call_is_as_if_all_had_passed_the_same(ranks):
    device = ranks.device
    own, out = torch.arange(8.0, device=device), torch.zeros(1, device=device)
    for op, value in (
        (dist.ReduceOp.SUM, 16.0),
        (dist.ReduceOp.AVG, 2.0),
        (dist.ReduceOp.MAX, 2.0),
    ):
        x = torch.full((3,), 2.0, device=device)
        dist.all_reduce(x, op)
        assert x.tolist() == [value] * 3
    dist.reduce(own, 0)
    dist.broadcast(own, 0)
    dist.send(own, 0)
    dist.barrier()
    assert own.tolist() == [*range(8)]
    dist.reduce_scatter_tensor(out, own)
    assert out.tolist() == [40.0]  # eight times its part
    dist.scatter(out, src=0)  # of which it is not told
    assert out.tolist() == [40.0]
    dist.scatter(out, list(own.split(1)), src=5)
    assert out.tolist() == [5.0]
    parts = [torch.zeros(1, device=device) for _ in range(8)]
    dist.all_gather(parts, out)
    assert torch.cat(parts).tolist() == [5.0] * 8
    whole = torch.zeros(8, device=device)
    dist.all_gather_into_tensor(whole, out * 2)
    assert whole.tolist() == [10.0] * 8
    dist.all_to_all_single(whole, own)
    assert whole.tolist() == [5.0] * 8
    uneven = torch.zeros(11, device=device)  # as many as it expects, of what it sends
    dist.all_to_all_single(uneven, own, [2] + [0] + [1] * 5 + [4], [1] * 8)
    assert uneven.tolist() == [0.0, 1.0, *[5.0] * 5, 0.0, 1.0, 2.0, 3.0]


def test_objects_are_ones_own(ranks):
    gathered, box, part = [None] * 8, [{"of": 5}], [None]
    dist.all_gather_object(gathered, "five")
    assert gathered == ["five"] * 8
    dist.broadcast_object_list(box, 0)
    assert box == [{"of": 5}]
    dist.scatter_object_list(part, None, 0)
    assert part == [None]
    dist.scatter_object_list(part, [*range(8)], 5)
    assert part == [5]
    dist.gather_object("five", gathered if dist.get_rank() == 5 else None, 5)
    assert gathered == ["five"] * 8


def test_tensors_of_the_host():
    with paper_world(2, 3, "cpu:gloo,xla:xla_cc"):
        x = torch.ones(2)
        dist.all_reduce(x)
        assert x.tolist() == [3, 3]
        group = dist.new_group([0, 2], backend="gloo")
        parts = [torch.zeros(2) for _ in range(2)]
        dist.all_gather(parts, x, group=group)
        assert torch.cat(parts).tolist() == [3] * 4
        dist.monitored_barrier(group)


def test_afterwards_torch_is_what_it_was(ranks):
    ours = dist.broadcast_object_list
    dist.destroy_process_group()
    with paper_world(1, 3):
        assert dist.get_world_size() == 3
    assert not dist.is_initialized()
    assert dist.broadcast_object_list is ours  # of the outer one


def _real(rank, size):
    dist.init_process_group("xla_cc")
    x = torch.full((3,), rank + 1.0, device=torch_xla.device())
    host = torch.full((2,), rank + 1.0)
    dist.all_reduce(x)
    objects = [None] * size
    dist.all_gather_object(objects, rank)
    dist.destroy_process_group()
    return x.tolist(), host.tolist(), objects


def test_a_real_world_after_one_on_paper():
    for _ in range(2):
        with paper_world(1, 3):
            x = torch.ones(3, device=torch_xla.device())
            dist.all_reduce(x)
            assert x.tolist() == [3.0] * 3
        for rank, said in enumerate(worlds.run(2, _real, 2)):
            assert said == ([3.0] * 3, [rank + 1.0] * 2, [0, 1])


def test_the_target_is_of_the_world(ranks):
    with pytest.raises(ValueError, match="has 8 ranks, but the target tpu:v5e:2x2 has 4"):
        torch_xla_cc.inspect(lambda: dist.all_reduce(ranks), target="tpu:v5e:2x2")


def exchanged(rows, received, sent):
    out = torch.empty(sum(received), rows.size(1), device=rows.device)
    dist.all_to_all_single(out, rows, received, sent)
    return out


def test_split_sizes(ranks):
    """Other ranks send this one what it expects, and each other what this one sends them."""
    even = torch_xla_cc.inspect(exchanged, ranks, [8] * 8, [8] * 8, target=TARGET)
    assert even.counts == {"all-to-all": 1}
    sent = [16, 0, 16, 0, 16, 8, 8, 0]
    arguments = (ranks, [4] * 5 + [8, 0, 0], sent)
    (call,) = trace.of_call("step", lambda: exchanged(*arguments), TARGET, None).calls
    report = torch_xla_cc.inspect(exchanged, *arguments, target=TARGET)
    assert call.op == "uneven_all_to_all"
    assert "[16,0,16,0,16,4,8,0]" in call.name and call.results == ("f32[128,512]",)
    assert report.counts == {"ragged-all-to-all": 1}
    with pytest.raises(ValueError, match="sends itself 8 rows, but expects 4 of itself"):
        torch_xla_cc.inspect(exchanged, ranks, [4] * 8, [8] * 8, target=TARGET)


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
