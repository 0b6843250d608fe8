"""What ranks on threads hear, and get, when a call fails while calls of other groups are pending.

A group of which a rank loses a call breaks for all its ranks: else its next call would be taken for
that, and the numbers would be wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch_xla

import torch_xla_cc.xla_model as xm
from torch_xla_cc import RanksDisagree
from torch_xla_cc.distributed import in_graph

LIMIT_S = 60.0  # of groups; nothing here waits for it
SOON_S = 20.0
_flags: dict[str, threading.Event] = {}
_lock = threading.Lock()


def _flag(name: str) -> threading.Event:
    """Of all ranks, for one run of a function."""
    with _lock:
        return _flags.setdefault(name, threading.Event())


def group_of(*members: int) -> Any:
    return dist.new_group(list(members), timeout=timedelta(seconds=LIMIT_S))


def full(value: float, size: int = 2) -> torch.Tensor:
    return torch.full((size,), float(value), device=torch_xla.device())


def got(call: Callable[[], Any]) -> Any:
    """What it gives, or the name of the error."""
    try:
        return call()
    except RanksDisagree as error:
        return type(error).__name__


def _together(*calls: tuple[torch.Tensor, Any]) -> Callable[[], list[list[float]]]:
    def run() -> list[list[float]]:
        with in_graph():
            for x, group in calls:
                dist.all_reduce(x, group=group)
            torch_xla.sync()
        return [x.tolist() for x, _ in calls]

    return run


class OneWorld:
    """One of torch.distributed; the next one is right."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __enter__(self) -> OneWorld:
        dist.init_process_group("xla_cc", timeout=timedelta(seconds=LIMIT_S))
        return self

    def __exit__(self, *_: object) -> None:
        size = dist.get_world_size()
        dist.destroy_process_group()
        dist.init_process_group("xla_cc", timeout=timedelta(seconds=LIMIT_S))
        x = full(self.rank)
        dist.all_reduce(x)
        assert x.tolist() == [size * (size - 1) / 2] * 2
        with _lock:
            _flags.clear()  # all have come this far
        dist.destroy_process_group()


def found_before_it_comes(rank: int, other: str, reads: bool) -> Any:
    """Rank 1 finds the failure while 0 has its call in the graph, and has not come to run it."""
    with OneWorld(rank):
        group = group_of(0, 1)
        x, y = full(rank), full(1, 3)
        if rank == 0:
            with in_graph():
                dist.all_reduce(x, group=group)
                _flag("issued").set()
                _flag("found").wait(SOON_S)
                return got(x.tolist if reads else torch_xla.sync), x.tolist(), got(x.tolist)
        if rank == 1:
            _flag("issued").wait(SOON_S)
            wrong = {
                "shape": lambda: dist.all_reduce(y, group=group),
                "barrier": lambda: dist.barrier(group=group),
            }[other]
            found = got(wrong)
            _flag("found").set()
            return found
        return None


def goes_on_elsewhere(rank: int) -> Any:
    """1 loses a call of [1, 2] with one of [0, 1], and goes on with its next one there."""
    with OneWorld(rank):
        first, second = group_of(0, 1), group_of(1, 2)
        x, y, z = full(rank + 1), full(10 * (rank + 1)), full(1000 * (rank + 1))
        if rank == 0:
            time.sleep(0.3)
            return [got(lambda: dist.barrier(group=first))]
        lost = [(y, second)] if rank == 2 else [(x, first), (y, second)]
        return [got(_together(*lost)), got(_together((z, second)))]


def comes_late_with_something(rank: int) -> Any:
    """[0, 1, 2] fails between 0 and 1; 2 comes to it with a call of [2, 3] pending."""
    with OneWorld(rank):
        first, second, unhurt = group_of(0, 1, 2), group_of(2, 3), group_of(2, 3)
        x, y, z = full(1, 2 + (rank == 1)), full(rank), full(rank)
        found = []
        if rank in (0, 1):
            found.append(got(_together((x, first))))
        if rank == 2:
            time.sleep(0.5)
            with in_graph():
                dist.all_reduce(y, group=second)
                found.append(got(lambda: dist.all_reduce(x, group=first)))
                found.append(y.tolist())
        if rank == 3:
            found.append(got(_together((y, second))))
        if rank >= 2:
            found.append(got(_together((y, second))))
            found.append(got(_together((z, unhurt))))
        return found


def two_at_once(rank: int) -> Any:
    """[0, 1] and [2, 3] fail; 1 and 2 have a call of [1, 2] pending, which is lost with either."""
    with OneWorld(rank):
        found = []
        for _ in range(3):
            groups = [group_of(0, 1), group_of(1, 2), group_of(2, 3)]
            own = [group for group in groups if rank in dist.get_process_group_ranks(group)]
            with in_graph():
                xs = [full(1, 3 if rank in (0, 3) else 2) for _ in own]
                heard = [
                    got(lambda x=x, g=group: dist.all_reduce(x, group=g))
                    for x, group in zip(xs, own, strict=True)
                ]
                heard.append(got(torch_xla.sync))
            found.append(sorted({*heard} - {None}))
            dist.barrier()
        return found


def helper_fails(rank: int, how: str) -> Any:
    """What a rank's helper waits for fails while its own thread has a call pending: that runs."""
    with OneWorld(rank):
        with_2, with_1 = group_of(0, 2), group_of(0, 1)
        x, m = full(rank + 1), full(1, 4 if rank == 0 else 5)
        torch_xla.sync(wait=True)
        if rank == 2:
            _flag(how).wait(SOON_S)
            return got(lambda: dist.isend(m, 0, group=with_2).wait())
        if rank == 1:
            _together((x, with_1))()
            return x.tolist()
        work, heard = dist.irecv(m, 2, group=with_2), []
        helper = threading.Thread(target=lambda: heard.append(got(work.wait)))
        if how != "waits later":
            helper.start()
            time.sleep(0.3)
        with in_graph():
            dist.all_reduce(x, group=with_1)
            if how == "waits later":
                helper.start()  # it may not run what is pending
            else:
                _flag(how).set()
            helper.join()
            _flag(how).set()
            return heard, x.tolist()


def loses_alone(rank: int, of_group: bool) -> Any:
    """0 has no memory, and loses its call to that: its next one is not what 1 waits with."""
    with OneWorld(rank):
        groups = [group_of(0, 1) for _ in range(2)]

        def total(x: torch.Tensor, group: Any) -> list[float]:
            with in_graph():
                if of_group:
                    dist.all_reduce(x, group=group)
                else:
                    x = xm.all_reduce(xm.REDUCE_SUM, x)
                return x.tolist()

        if rank == 0:
            huge = torch.zeros(2**45, device=torch_xla.device()) + 1
            torch_xla.sync()  # what is in this step is lost to torch_xla as well: nothing else is
            with pytest.raises(RuntimeError, match="Out of memory"):
                total(full(1), groups[0])
            del huge
        found = [got(lambda: total(full(10), groups[0]))]
        return [*found, got(lambda: total(full(100), groups[1]))]


def _compiled(x: torch.Tensor, group: Any) -> torch.Tensor:
    return functional.all_reduce(x * 2, "sum", group) + 1


def crossed(rank: int) -> Any:
    """Two groups of the same ranks: what is compiled for one is not for the other."""
    with OneWorld(rank):
        groups = [group_of(0, 1), group_of(0, 1)]
        step = torch.compile(_compiled, backend="openxla")
        found = [step(full(rank), group).tolist() for group in groups for _ in range(2)]
        values = [full(rank), full(10 * rank)]
        order = [0, 1] if rank == 0 else [1, 0]
        return [*found, *(got(lambda i=i: step(values[i], groups[i]).tolist()) for i in order)]


def compiled_again(rank: int) -> Any:
    """What is compiled runs in groups that were made anew, after their like have broken."""
    step = torch.compile(_compiled, backend="openxla")
    found = []
    for time_ in range(3):
        with OneWorld(rank):
            group = group_of(0, 1)
            found.append(step(full(rank), dist.group.WORLD).tolist())
            if rank < 2:
                found.append(step(full(rank), group).tolist())
                if time_ < 2:
                    found.append(got(_together((full(1, 2 + rank), group))))
                    found.append(got(lambda g=group: step(full(rank), g).tolist()))
    return found


def compiled_on_some(rank: int, who: list[int]) -> Any:
    """A function that only some ranks have compiled: torch.compile gives it up on others."""
    with OneWorld(rank):
        step = torch.compile(_compiled, backend="openxla") if rank in who else _compiled
        found = []
        for _ in range(3):
            x = full(rank)
            dist.all_reduce(x)
            found.append(step(x, dist.group.WORLD).tolist())
        return found


def barrier_against_compiled(rank: int) -> Any:
    """A compiled call is not announced, so it is not compared with a barrier."""
    with OneWorld(rank):
        step = torch.compile(_compiled, backend="openxla")
        found = [step(full(rank), dist.group.WORLD).tolist()]
        if rank == 0:
            return [*found, got(lambda: dist.barrier())]
        return [*found, got(lambda: step(full(rank), dist.group.WORLD).tolist())]


def compiled_in_one_that_has_broken(rank: int) -> Any:
    """Its first call fails, and the next one, and then it is as good as new."""
    step = torch.compile(_compiled, backend="openxla")
    with OneWorld(rank):
        found = [got(lambda: dist.all_reduce(full(1, 2 + rank)))]
        found += [got(lambda: step(full(rank), dist.group.WORLD).tolist()) for _ in range(2)]
    with OneWorld(rank):
        return [*found, step(full(rank), dist.group.WORLD).tolist()]


def begins_late(rank: int) -> Any:
    """1 and 2 begin anew, and differ in a call of no group, before 0 has come to that."""
    with OneWorld(rank):
        pass
    if rank == 0:
        _flag("heard").wait(SOON_S)
    with OneWorld(rank):
        x = full(1, 2 + (rank == 2))
        found = [got(lambda: xm.all_reduce(xm.REDUCE_SUM, x).tolist())] if rank else []
        _flag("heard").set()
        if rank == 0:
            found = [got(lambda: xm.all_reduce(xm.REDUCE_SUM, x).tolist())]
        return [*found, xm.all_reduce(xm.REDUCE_SUM, full(10 * rank)).tolist()]
