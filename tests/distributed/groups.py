"""Ways to make groups, each as a function of the rank."""

from __future__ import annotations

import gc
import os
import re
import time
from datetime import timedelta
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
import torch_xla
from torch._C import _distributed_c10d as c10d
from torch.distributed.device_mesh import init_device_mesh

import torch_xla_cc
import torch_xla_cc.distributed


def sum_of_ones(group=None):
    x = torch.ones(2, device=torch_xla.device())
    dist.all_reduce(x, group=group)
    return x.tolist()


def part():
    """All have come this far: a world that ends where others still connect to it fails there."""
    dist.all_reduce(torch.zeros(1))


def restart(rank, world, where, /, **how):
    """A world made in that way, instead of the one that is there."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group(**how)
    try:
        assert dist.get_rank() == rank and dist.get_world_size() == world
        return sum_of_ones()
    finally:
        dist.destroy_process_group()


def by_url(rank, world, where, backend, url):
    how = {} if url in ("env://", "xla://") else {"rank": rank, "world_size": world}
    # Under torchrun a tcp:// url means the store of its agent, also where that is not.
    agent = os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None) if "tcp" in url else None
    try:
        return restart(rank, world, where, backend=backend, init_method=url, **how)
    finally:
        if agent is not None:
            os.environ["TORCHELASTIC_USE_AGENT_STORE"] = agent


def late(rank, world, path):
    """Rank 0 comes late, so that the others' waits in the store end once before."""
    dist.init_process_group("xla_cc", init_method=f"file://{path}", rank=rank, world_size=world)
    try:
        sum_of_ones()
        time.sleep(1.5 if rank == 0 else 0)
        return sum_of_ones()
    finally:
        dist.destroy_process_group()


def env_again(rank, world):
    """Worlds in one store, the second beginning with another call than the first."""
    made = []
    for times in (1, 2, 3):
        time.sleep(0.5 if rank == times % world else 0.0)  # late: what it wrote before is there
        dist.init_process_group("xla_cc", timeout=timedelta(seconds=20))
        assert dist.get_world_size() == world
        for _ in range(times):
            made.append(sum_of_ones())
        x = torch.full((times,), float(rank), device=torch_xla.device())
        dist.broadcast(x, src=times % world)
        made.append(x.tolist())
        dist.destroy_process_group()
    return made


def slow_to_connect(rank, world, path):
    """When this rank had the group, and when the last was connected: that is rank 1's."""
    connect = c10d.ProcessGroupGloo
    connected = []

    def slow(*args):
        gloo = connect(*args)
        time.sleep(2.0 if rank == 1 else 0.0)
        connected.append(time.monotonic())
        return gloo

    with mock.patch.object(c10d, "ProcessGroupGloo", slow):
        dist.init_process_group("xla_cc", init_method=f"file://{path}", rank=rank, world_size=world)
    made = time.monotonic()
    dist.destroy_process_group()
    return connected[0], made


def by_store(rank, world, where, backend, path):
    store = dist.FileStore(path, world)
    return restart(rank, world, where, backend=backend, store=store, rank=rank, world_size=world)


def installed(rank, world, url):
    """torch_xla's own name of the backend."""
    if dist.is_initialized():
        dist.destroy_process_group()
    with torch_xla_cc.installed():
        dist.init_process_group("xla", init_method=url)
        backend = dist.group.WORLD._get_backend(torch.device("xla"))
        found = [backend.name(), sum_of_ones()]
        group = dist.new_group([0, 1], use_local_synchronization=True) if rank < 2 else None
        found.append(sum_of_ones(group) if rank < 2 else [2.0, 2.0])
        dist.barrier()
        dist.destroy_process_group()
    return found


def local_groups(rank):
    """Only the members make the group: no call on the others."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    members = [0, 2, 3]
    with torch_xla_cc.installed():
        dist.new_group([0, 1])  # so that the three are not in the same number of groups
        if rank not in members:
            part()
            return None
        made = [
            dist.new_group(
                members,
                use_local_synchronization=True,
                timeout=timedelta(seconds=30),
                group_desc="three of four",
            )
            for _ in range(2)
        ]
        part()
        return [sum_of_ones(group) for group in made]


def subgroups(rank):
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    group, groups = dist.new_subgroups(2)
    assert len(groups) == 2
    part()
    return sum_of_ones(group), dist.get_process_group_ranks(group)


def split(rank):
    """Ranks 3 and 1, rank 2, and rank 0 in none; then a part of a part, after install()."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    dist.new_group([1, 2])  # so that 3 and 1 are not in the same number of groups
    split_group = torch_xla_cc.distributed.split_group
    group = split_group(split_ranks=[[3, 1], [2]], timeout=timedelta(seconds=30))
    part()
    if rank == 0:
        return group
    found = [dist.get_process_group_ranks(group), sum_of_ones(group)]
    if rank == 2:
        return found
    with torch_xla_cc.installed():
        alone = dist.split_group(group, [[0], [1]])
    return [*found, dist.get_process_group_ranks(alone), sum_of_ones(alone)]


def along_axes(rank):
    """Sums over both axes of a mesh, as nodes for eight chips."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    columns = [dist.new_group([i, i + 4]) for i in range(4)]
    rows = [dist.new_group([i, i + 1, i + 2, i + 3]) for i in (0, 4)]
    part()
    x = torch.ones(2, device=torch_xla.device())
    with torch_xla_cc.lowering_for("tpu:v5e:2x4"), torch_xla_cc.distributed.in_graph():
        dist.all_reduce(x, group=columns[rank % 4])
        dist.all_reduce(x, group=rows[rank // 4])
        group, y = columns[rank % 4], torch.zeros_like(x)
        peer = (rank + 4) % 8
        ends = [dist.P2POp(dist.isend, x, peer, group), dist.P2POp(dist.irecv, y, peer, group)]
        for work in dist.batch_isend_irecv(ends):
            work.wait()
    text = torch_xla._XLAC._get_xla_tensors_hlo([x, y])
    torch_xla._XLAC._clear_pending_irs(f"xla:{rank}")
    listed = r"all-reduce\(.*?replica_groups=(\[.*?\]<=\[.*?\](?:T\(.*?\))?)"
    return re.findall(listed, text) + re.findall(r"source_target_pairs=(\{\{.*?\}\})", text)


def connections(rank):
    """How many sockets this process has to the store, before and after it makes ten groups."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    sum_of_ones()
    before = _sockets_to(int(os.environ["MASTER_PORT"]))
    assert [sum_of_ones(dist.new_group()) for _ in range(10)] == [[2.0, 2.0]] * 10
    return before, _sockets_to(int(os.environ["MASTER_PORT"]))


def _sockets_to(port):
    own = {os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if entry.is_symlink()}
    count = 0
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, _, remote, *rest = line.split()
            count += int(remote.rsplit(":")[-1], 16) == port and f"socket:[{rest[6]}]" in own
    return count


def threads_of_failed(rank, world, path):
    """How many threads a rank has after worlds that failed have ended, by the way they failed."""

    def end_of(how):
        store = dist.FileStore(f"{path}/{how}", world)
        limit = timedelta(seconds=60)
        dist.init_process_group("xla_cc", store=store, rank=rank, world_size=world, timeout=limit)
        assert sum_of_ones() == [world] * 2
        wrong = rank == 0 and not how.startswith("right")
        x = torch.ones(3 if wrong else 2).to(torch_xla.device())
        try:
            if "message" in how:
                y = torch.zeros(2).to(torch_xla.device())
                other = dist.isend(x, (rank + 1) % world)
                try:
                    dist.recv(y, (rank - 1) % world)
                finally:  # gloo says of no send that it is done, unless somebody waits
                    other.wait()
            dist.all_reduce(x)
        except torch_xla_cc.RanksDisagree:
            assert not how.startswith("right")
        else:
            assert how.startswith("right")
        dist.destroy_process_group()
        del x
        gc.collect()

    found = []
    for how in ("right", "right again", "call", "call again", "message", "right after"):
        end_of(how)
        until = time.monotonic() + 20  # they end beside this
        while (left := len(os.listdir("/proc/self/task"))) > min(found, default=left):
            if time.monotonic() > until:
                break
            time.sleep(0.05)
        found.append(left)
    return found


def wrong_splits(rank):
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    found = []
    for ranks in (None, [], [[]], [[0, 1], [1]], [[2]]):
        try:
            torch_xla_cc.distributed.split_group(split_ranks=ranks)
        except ValueError as error:
            found.append(str(error))
    part()
    return found


def monitored(rank):
    """All come; then rank 1 does not."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    monitored_barrier = torch_xla_cc.distributed.monitored_barrier
    group = dist.new_group()
    with torch_xla_cc.installed():
        dist.monitored_barrier(group)
    found = ""
    if rank != 1:
        try:
            monitored_barrier(group, timedelta(seconds=1), wait_all_ranks=True)
        except torch_xla_cc.distributed.CollectiveTimeoutError as error:
            found = str(error)
    dist.all_reduce(torch.zeros(1))
    return found


def mesh(rank):
    """torch makes no groups for a mesh of device type "xla"; those of "cpu" have both backends."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    found = []
    for name in ("rows", "columns"):
        x = torch.full((1,), float(rank), device=torch_xla.device())
        dist.all_reduce(x, group=both.get_group(name))
        found.append(x.item())
    return found


def barriers(rank):
    """Rank 1 comes late to all but the first; how long each waits."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    group = dist.new_group(backend="xla_cc")
    waited = []
    for times in range(4):
        if rank == 1 and times > 0:
            time.sleep(0.5)
        begin = time.monotonic()
        dist.barrier(group)
        waited.append(time.monotonic() - begin)
    return waited[1:]
