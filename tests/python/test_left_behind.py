"""Threads that launch does not wait for: helpers of a rank, ranks that outlive it, the process."""

import os
import sys
import threading

import forks
import pytest
import torch
import torch.distributed as dist
import torch_xla
import worlds

from torch_xla_cc import _C
from torch_xla_cc import xla_model as xm
from torch_xla_cc.distributed import in_graph

# A launch that fails, and whose rank 1 goes on; then one that must not notice.
LEFT = """
import threading, time
import torch, torch_xla, torch.distributed as dist
import torch_xla_cc, torch_xla_cc.distributed
from torch_xla_cc import xla_model as xm
from torch_xla_cc._threads import read_hooks

go, done, said = threading.Event(), threading.Event(), []

def waits(event, seconds):
    end = time.monotonic() + seconds
    while not event.is_set() and time.monotonic() < end:
        try:
            event.wait(0.1)
        except BaseException:
            pass  # it is told to stop, and does not

def first(rank):
    if rank == 0:
        raise ValueError("end it")
    device = torch_xla.device()
    waits(go, 30)
    try:
        {what}
    except BaseException as error:
        said.append(f"{{type(error).__name__}}: {{error}}")
    threading.Timer(0.5, done.set).start()

def second(rank):
    a = torch.full((3,), float(rank), device=torch_xla.device())
    b = a * 2 + 1
    total = xm.all_reduce(xm.REDUCE_SUM, b)
    if rank == 0:
        go.set()
    done.wait(20)
    return total.tolist(), xm.all_reduce(xm.REDUCE_SUM, a).tolist(), b.tolist()

try:
    torch_xla_cc.launch(first, nprocs=2)
except ValueError:
    pass
print(torch_xla_cc.launch(second, nprocs=2))
print(said)
"""
ENV = {**os.environ, "PJRT_DEVICE": "CPU"}


def script(code: str) -> list[str]:
    done = forks.run_code(code, env=ENV)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr[-3000:])
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "what",
    [
        "pass  # and returns: a step",
        "xm.all_reduce(xm.REDUCE_SUM, torch.ones(3, device=device)).tolist()",
        "torch.ones(3, device=device).tolist()",
        "torch_xla.sync()",
        "torch_xla._XLAC._clear_pending_irs('xla:1')",
        "read_hooks.drop(1)  # as when it was in a call that fails now",
    ],
)
def test_a_rank_that_outlives_its_launch_changes_nothing_of_the_next(what):
    values, said = script(LEFT.format(what=what))
    assert values == repr([([4.0] * 3, [1.0] * 3, [1.0] * 3), ([4.0] * 3, [1.0] * 3, [3.0] * 3)])
    if what.startswith(("pass", "read_hooks")):
        assert said == "[]"
    else:
        assert "a rank whose launch has ended" in said, said


def test_a_rank_that_outlives_its_launch_leaves_the_programs_groups():
    *_, initialized = script(
        """
import time, torch.distributed as dist, torch_xla_cc, torch_xla_cc.distributed
left = []
def fn(rank):
    if rank == 0:
        raise ValueError("end it")
    end = time.monotonic() + 7
    while time.monotonic() < end:
        try:
            time.sleep(0.2)
        except BaseException:
            pass
try:
    torch_xla_cc.launch(fn, nprocs=2)
except ValueError:
    pass
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
time.sleep(4)
print(dist.is_initialized())
"""
    )
    assert initialized == "True"


def differs_while_one_sleeps(rank):
    if rank == 0:
        threading.Event().wait(3)
    else:
        x = torch.ones(2 + rank, device=torch_xla.device())
        xm.all_gather(x, groups=[[1, 2], [0]])
        torch_xla.sync()


def test_what_is_raised_is_the_cause_and_not_that_a_rank_was_stopped():
    with worlds.World(3) as three, pytest.raises(_C.RanksDisagree, match="all_gather"):
        three.run(differs_while_one_sleeps)


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raises_unprintable(rank):
    if rank == 0:
        raise Unprintable
    xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=torch_xla.device())).tolist()


def test_an_exception_without_text_stops_the_others_at_once():
    [name] = script(
        f"""
import sys
sys.path[:0] = {sys.path!r}
import test_left_behind as tests, torch_xla_cc
try:
    torch_xla_cc.launch(tests.raises_unprintable, nprocs=2)
except Exception as error:
    print(type(error).__name__)
"""
    )
    assert name == "Unprintable"


def helpers_that_read(rank):
    device = torch_xla.device()
    stop, wrong, reads = threading.Event(), [], [0]
    x = torch.arange(8.0, device=device)
    torch_xla.sync()
    totals = []

    def read():
        try:
            while not stop.is_set():
                assert x.tolist() == list(range(8))
                for step, total in enumerate(totals[-3:], max(0, len(totals) - 3)):
                    assert total.tolist() == [3.0 + 3 * step] * 2
                reads[0] += 1
        except BaseException as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for step in range(20):
            own = torch.full((2,), float(rank + step), device=device)
            total = xm.all_reduce(xm.REDUCE_SUM, own)
            torch_xla.sync()
            totals.append(total)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert reads[0] > 0
    return [total[0].item() for total in totals], wrong


def test_helpers_of_a_rank_may_read_what_is_computed_while_it_calls_collectives():
    with worlds.World(3) as three:
        for _ in range(2):
            assert three.run(helpers_that_read) == [([3.0 + 3 * s for s in range(20)], [])] * 3


def helpers_that_do_more(rank):
    said = []

    def call(f):
        try:
            f()
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")

    x = torch.ones(2, device=torch_xla.device())
    total = xm.all_reduce(xm.REDUCE_SUM, x)
    dist.init_process_group("xla_cc", init_method="xla://")
    group = dist.group.WORLD  # torch has one for each thread
    calls = [lambda: xm.all_reduce(xm.REDUCE_SUM, x), lambda: group.allreduce([x]).wait()]
    for f in (*calls, total.tolist, lambda: total.cpu()):
        helper = threading.Thread(target=call, args=(f,))
        helper.start()
        helper.join()
    dist.all_reduce(x)  # the group is whole
    dist.destroy_process_group()
    return said, total.tolist(), x.tolist()


def test_collectives_and_steps_are_for_the_ranks_own_thread():
    with worlds.World(2) as two:
        for rank, (said, total, x) in enumerate(two.run(helpers_that_do_more)):
            assert total == x == [2.0, 2.0]
            assert len(said) == 4 and said[0].startswith("RanksDisagree: all_reduce(")
            for text in said:
                assert "RanksDisagree: " in text and "test_left_behind.py:" in text
                assert f"this is not the thread of rank {rank}" in text


def generators_of_modes(rank):
    """Whether calls stay in the graph, after blocks that end in another order and on others."""
    dist.init_process_group("xla_cc", init_method="xla://")
    found = []

    def stays():
        x = torch.ones(2, device=torch_xla.device())
        dist.all_reduce(x)
        found.append(_C.ranks_pending(rank))
        torch_xla.sync()

    def block():
        with in_graph():
            yield

    first, second = block(), block()
    next(first), next(second)
    first.close()
    stays()
    second.close()
    stays()
    third = block()
    next(third)
    closes = threading.Thread(target=third.close)
    closes.start()
    closes.join()
    stays()
    with in_graph():
        stays()
    stays()
    dist.destroy_process_group()
    return found


def test_modes_end_in_any_order_and_on_any_thread():
    with worlds.World(2) as two:
        assert two.run(generators_of_modes) == [[True, False, False, True, False]] * 2


def test_what_torch_hangs_into_the_process_is_taken_out():
    same, prefix = script(
        """
import sys, torch.distributed as dist, torch_xla_cc, torch_xla_cc.distributed
from torch.distributed import distributed_c10d as c10d
def fn(rank):
    for _ in range(3):
        dist.init_process_group("xla_cc", init_method="xla://")
        dist.destroy_process_group()
before = sys.excepthook, c10d._default_pg_init_method
torch_xla_cc.launch(fn, nprocs=2)
print(before == (sys.excepthook, c10d._default_pg_init_method))
print(dist.is_initialized())
"""
    )
    assert (same, prefix) == ("True", "False")


def test_a_collective_outside_of_launch_with_several_devices():
    before, after = script(
        """
import os
os.environ["CPU_NUM_DEVICES"] = "2"
import torch, torch_xla, torch_xla_cc
from torch_xla_cc import xla_model as xm
def fn(rank):
    return torch.ones(2, device=torch_xla.device())
x = torch_xla_cc.launch(fn, nprocs=2)[0]
for _ in range(2):
    try:
        print(xm.all_reduce("sum", x))
    except RuntimeError as error:
        print(error)
"""
    )
    assert "outside of torch_xla_cc.launch" in before and before == after


def test_a_launch_in_a_process_that_was_forked_from_a_running_one():
    text = "\n".join(
        script(
            """
import os, torch_xla_cc
def fn(rank):
    return rank
torch_xla_cc.launch(fn, nprocs=2)
child = os.fork()
if child == 0:
    try:
        torch_xla_cc.launch(fn, nprocs=2, timeout_s=5)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
        )
    )
    assert "this process was forked from one in which the XLA runtime had started" in text
