"""What a rank has of a group's parts: for test_own_parts.py."""

import copy
import pickle

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._ops._embedding_ops import _MaskPartial

import torch_xla_cc.distributed
from torch_xla_cc.adapters import dtensor
from torch_xla_cc.adapters._masks import FilledMasks
from torch_xla_cc.adapters._rank_numbers import RankNumber
from torch_xla_cc.distributed import own_part


def begin():
    torch_xla_cc.install()
    dtensor.install()
    if not dist.is_initialized():
        dist.init_process_group("xla_cc", init_method="xla://")


def chunks(rank, size):
    """Of the world, and along each axis of a mesh: whether they are the chunks of torch."""
    begin()
    mesh = init_device_mesh("xla", (2, size // 2))
    found = {}
    for name, group in {
        "world": dist.group.WORLD,
        "rows": mesh.get_group(0),
        "columns": mesh.get_group(1),
        "backwards": dist.new_group(list(range(size))[::-1]),
    }.items():
        x = torch.arange(4 * size * 3).reshape(3, 4 * size)
        own = own_part.chunk(x.to("xla"), -1, group)
        wanted = x.chunk(group.size(), -1)[group.rank()]
        number = own_part.rank(group, own)
        found[name] = own.cpu().equal(wanted) and number.item() == group.rank()
    return found


def windows(rank, size):
    """Of chunks of what does not divide, and of windows that begin elsewhere on each rank."""
    begin()
    world = dist.group.WORLD
    x = torch.arange(2 * size + 1).to("xla")
    own = own_part.padded_chunk(x, world)
    window = own_part.window(x, 3, lambda place: 2 * place, world)
    whole = [*range(2 * size + 1)]
    padded = whole + [0] * (size - 1)
    return own.tolist() == padded[3 * rank : 3 * rank + 3] and (
        window.tolist() == whole[2 * rank : 2 * rank + 3]
    )


def left_to_torch(rank, size):
    """What is uneven, on the CPU, or fake."""
    begin()
    world = dist.group.WORLD
    odd = own_part.chunk(torch.zeros(size + 1, device="xla"), 0, world)
    cpu = own_part.chunk(torch.zeros(size), 0, world)
    mesh = init_device_mesh("xla", (size,))
    with FakeTensorMode():
        fake = torch.empty(2 * size, device="xla")
        shard = Shard(0)._replicate_to_shard(fake, mesh, 0, rank)
    return odd is None and cpu is None and tuple(shard.shape) == (2,)


def without_a_source(rank, size):
    """distribute_tensor that sends nothing."""
    begin()
    mesh = init_device_mesh("xla", (size,))
    x = torch.arange(3 * size * 2).reshape(3 * size, 2)
    made = distribute_tensor(x.to("xla"), mesh, [Shard(0)], src_data_rank=None)
    return made.to_local().cpu().equal(x.chunk(size)[rank])


def masks(rank, size):
    """Of indices of any type, into a vocabulary that divides or not."""
    begin()
    mesh = init_device_mesh("xla", (size,))
    wrong = []
    for dtype in (torch.uint8, torch.int32, torch.int64):
        for whole in (200 * size, 200 * size - 1):
            x = torch.tensor([0, 5, 150, 199, 200, 205, 255]).to(dtype)
            partial = _MaskPartial(offset_shape=torch.Size([whole]), offset_dim=0)
            got = partial._partition_value(x.to("xla"), mesh, 0)
            own, start = Shard._local_shard_size_and_offset(whole, size, rank)
            outside = (x.long() < start) | (x.long() >= start + own)
            wanted = (x.long() - start).masked_fill(outside, 0)
            same = got.dtype == dtype and got.cpu().long().equal(wanted)
            if not (same and partial.mask_buffer.data.cpu().equal(outside)):
                wrong.append((dtype, whole))
    return wrong


def masks_run_nothing(rank, size):
    """How many programs run where masks are made and written by: torch reads them."""
    import programs  # of the harness, which a dry run is without

    begin()
    mesh = init_device_mesh("xla", (size,))
    words, rows = torch.arange(7).to("xla"), torch.ones(7, 3).to("xla")
    before = programs.ran()
    partial = _MaskPartial(offset_shape=torch.Size([8]), offset_dim=0)
    partial._partition_value(words, mesh, 0)
    partial.mask_buffer.apply_mask(rows)
    ran = programs.ran() - before
    store = dist.distributed_c10d._get_default_store()
    store.set(f"counted/{rank}", "")  # the others' programs count here too: ranks are threads
    store.wait([f"counted/{other}" for other in range(size)])
    start = rank * 8 // size
    kept = [float(start <= word < start + 8 // size) for word in range(7)]
    return ran, rows[:, 0].tolist() == kept


def numbers_of_a_rank(rank, size):
    """An int, which is data where torch compares it with a tensor, also of a copy."""
    begin()
    number = RankNumber(dist.group.WORLD, 5, 2)
    x = torch.arange(5 * size + 2).to("xla")
    wanted = x.cpu() < rank * 5 + 2
    copied = copy.deepcopy(number)
    with FilledMasks():
        less = (x < copied).cpu().equal(wanted)
        part = x[:number].cpu().equal(x.cpu()[: rank * 5 + 2])
    saved = pickle.loads(pickle.dumps(number))
    same = type(copied) is RankNumber and type(saved) is int and saved == number == rank * 5 + 2
    return less and part and same


def in_a_dry_run(rank, size):
    """The dry-run world of another rank than the device's number."""
    from torch_xla_cc.distributed import paper_world

    with paper_world(2, size):
        torch_xla_cc.install()
        dtensor.install()
        mesh = init_device_mesh("xla", (size,))
        x = DTensor.from_local(torch.arange(2 * size).to("xla"), mesh, [Replicate()])
        return x.redistribute(placements=[Shard(0)]).to_local().tolist()
