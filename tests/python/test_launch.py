"""launch: results, failures, and that torch_xla is as it was afterwards."""

import os
import sys
import textwrap
import threading
import time

import forks
import pytest
import torch
import torch_xla
import worlds
from torch_xla.core import xla_model as stock

from torch_xla_cc import xla_model as xm

SECONDS = 15  # for "at once" on a busy machine; nothing below waits longer than 5 s for anything


class Boom(Exception):
    """Raised by a rank; nothing else raises it."""


def result(rank, name):
    value = torch.full((2,), float(rank), device=torch_xla.device())
    total = xm.all_reduce(xm.REDUCE_SUM, value)
    return {"rank": rank, "name": name, "device": str(value.device), "sum": total.tolist()}


@pytest.mark.parametrize("size", [1, 2, 4])
def test_results_by_rank_and_again(size):
    for name in ("first", "second"):
        results = worlds.run(size, result, name)
        total = float(size * (size - 1) // 2)
        assert results == [
            {"rank": rank, "name": name, "device": f"xla:{rank}", "sum": [total, total]}
            for rank in range(size)
        ]


def left_pending(rank):
    xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=torch_xla.device()))


def test_what_is_pending_at_the_end_runs():
    assert worlds.run(2, left_pending) == [None, None]
    assert worlds.run(2, result, "next")[1]["sum"] == [1.0, 1.0]


def in_sync():
    xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=torch_xla.device()))
    torch_xla.sync()


def in_item():
    xm.all_reduce(xm.REDUCE_SUM, torch.ones((), device=torch_xla.device())).item()


def in_print():
    print(xm.all_gather(torch.ones(2, device=torch_xla.device())))


def in_recv():
    xm.recv((2,), 3)


def in_a_busy_loop():
    while True:
        pass


def in_a_loop_that_sleeps():
    while True:
        time.sleep(0.01)


def in_a_loop_that_catches():
    while True:
        try:
            time.sleep(0.01)
        except Exception:
            continue


def in_a_loop_of_steps():
    value = torch.ones(2, device=torch_xla.device())
    while True:
        value = xm.all_reduce(xm.REDUCE_MAX, value, groups=[[0, 2], [1], [3]])
        torch_xla.sync()


PLACES = [in_sync, in_item, in_print, in_recv, in_a_busy_loop, in_a_loop_that_sleeps]
PLACES += [in_a_loop_that_catches, in_a_loop_of_steps]


def raise_boom():
    raise Boom("of rank 1")


def one_fails(rank, place):
    if rank == 1:
        time.sleep(0.3)  # the others are there by then
        raise_boom()
    place()


@pytest.mark.parametrize("place", PLACES)
def test_one_failure_ends_all(place):
    worlds.run(4, result, "started")  # its start is not what is timed
    start = time.monotonic()
    with pytest.raises(Boom, match="of rank 1") as failure:
        worlds.run(4, one_fails, place, timeout_s=60)
    assert time.monotonic() - start < SECONDS
    assert failure.value.__notes__ == ["raised by rank 1 of 4"]
    assert "in raise_boom" in str(failure.value.__cause__)  # the worker's traceback
    # And the next launch starts from nothing.
    assert worlds.run(4, result, "after")[3]["sum"] == [6.0, 6.0]
    assert max(worlds.run(4, threads_of_ranks)) <= 4


def threads_of_ranks(rank):
    return sum(thread.name.startswith("rank ") for thread in threading.enumerate())


def late_failure(rank):
    if rank == 2:
        time.sleep(0.5)
        raise_boom()
    return rank


def test_a_failure_after_the_others_have_returned():
    with pytest.raises(Boom):
        worlds.run(4, late_failure)


KEPT = []


def keep_what_is_pending(rank):
    if rank == 0:
        KEPT.append(xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=torch_xla.device())))
    raise_boom()


def run_out_of_memory(rank, wait, pending):
    """128 TiB, on every rank: XLA refuses when the program starts, before its collective."""
    total = xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=torch_xla.device()))
    try:
        huge = torch.zeros(2**45, device=total.device) + total.sum()
        torch_xla.sync(wait=wait)
        if pending:  # the error comes with the next step
            xm.all_gather(torch.ones(2, device=total.device))
            torch_xla.sync()
        stock.wait_device_ops()
        message = "no error"
    except RuntimeError as error:
        message = str(error)
    del huge
    return message, xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=total.device)).tolist()


@pytest.mark.parametrize(("wait", "pending"), [(True, False), (False, False), (False, True)])
def test_programs_that_cannot_run_raise_on_each_rank_and_the_next_ones_run(wait, pending):
    for message, after in worlds.run(4, run_out_of_memory, wait, pending):
        assert "Out of memory" in message
        assert after == [4.0, 4.0]


def test_what_a_failed_launch_left_pending_never_runs():
    with worlds.World(2) as world:  # of its own: it dies if this goes wrong
        with pytest.raises(Boom):
            world.run(keep_what_is_pending)
        assert world.run(result, "after")[1]["sum"] == [1.0, 1.0]


def leave(rank):
    if rank == 0:
        sys.exit(7)
    in_sync()


def test_sys_exit_of_a_rank():
    with pytest.raises(SystemExit) as left:
        worlds.run(2, leave)
    assert left.value.code == 7


def nested(rank):
    import torch_xla_cc

    return torch_xla_cc.launch(result, ("inner",), 2, timeout_s=20)


def test_launch_inside_of_a_rank_is_an_error():
    with worlds.World(2) as world:  # of its own, as above
        with pytest.raises(RuntimeError, match="launch"):
            world.run(nested, timeout_s=50)
        assert world.run(result, "after")[1]["sum"] == [1.0, 1.0]


def eager(rank):
    torch_xla.experimental.eager_mode(True)


def test_eager_mode_is_refused():
    with pytest.raises(RuntimeError, match="eager mode"):
        worlds.run(2, eager)


# From here on in fresh processes.
PRELUDE = """
import os, sys, time, torch, torch_xla, torch_xla_cc
from torch_xla_cc import xla_model as xm
def total(rank):
    return xm.all_reduce("sum", torch.ones(1, device=torch_xla.device())).item()
def error(function, *args, **kwargs):
    try:
        out = function(*args, **kwargs)
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"
    return f"no error, but {out}"
"""


def python(script: str, **env: str) -> list[str]:
    """The lines that a script prints; it must end by itself, with exit code 0."""
    cleared = {name: value for name, value in os.environ.items() if not name.startswith("XLA_")}
    env = {**cleared, "PJRT_DEVICE": "CPU", **env}
    done = forks.run_code(PRELUDE + textwrap.dedent(script), env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_another_number_of_devices_than_the_runtime_has():
    first, second, again = python("""
        print(torch_xla_cc.launch(total, (), 2))
        print(error(torch_xla_cc.launch, total, (), 4))
        print(torch_xla_cc.launch(total, (), 2))
    """)
    assert first == again == "[2.0, 2.0]"
    assert second.startswith("RuntimeError: launch: nprocs = 4")
    assert "2 CPU device(s)" in second


def test_results_may_be_tensors_on_the_devices():
    [values] = python("""
        def double(rank):
            return 2 * xm.all_gather(torch.full((1,), rank, device=torch_xla.device()))
        print([tensor.tolist() for tensor in torch_xla_cc.launch(double, (), 3)])
    """)
    assert values == "[[0, 2, 4], [0, 2, 4], [0, 2, 4]]"


def test_a_runtime_that_was_started_before():
    outside, refused, pool = python("""
        x = torch.ones(1, device=torch_xla.device())
        print((x + 1).item())
        print(error(torch_xla_cc.launch, total, (), 4))
        print(torch_xla_cc.launch(total, (), 1))
    """)
    assert (outside, pool) == ("2.0", "[1.0]")
    assert refused.startswith("RuntimeError: launch: nprocs = 4")
    assert "1 CPU device(s)" in refused and "before any use of an XLA device" in refused


def test_a_runtime_that_was_started_with_a_small_pool():
    script = "torch_xla.device(); print(error(torch_xla_cc.launch, total, (), 4))"
    [refused] = python(script, CPU_NUM_DEVICES="4", XLA_THREAD_POOL_SIZE="2")
    assert refused.startswith("RuntimeError: launch: nprocs = 4")
    assert "before any use of an XLA device" in refused


@pytest.mark.parametrize(
    ("env", "least"),
    [({}, 5), ({"XLA_THREAD_POOL_SIZE": "1"}, 5), ({"XLA_THREAD_POOL_SIZE": "17"}, 17)],
)
def test_the_thread_pool_is_large_enough(env, least):
    results, size = python(
        'print(torch_xla_cc.launch(total, (), 5)); print(os.environ["XLA_THREAD_POOL_SIZE"])', **env
    )
    assert results == str([5.0] * 5)
    assert int(size) >= least


def test_bad_numbers_of_ranks():
    # torch has no more than 128 devices of a kind.
    numbers = "0, -1, '2', 1.5, [2], True, 129, 2**40"
    lines = python(f"for n in ({numbers}): print(error(torch_xla_cc.launch, total, (), n))")
    wrong = [li for li in lines if not li.startswith(("ValueError: launch", "TypeError: launch"))]
    assert len(lines) == 8 and not wrong


def test_collectives_outside_of_launch_on_several_devices():
    # As torch_xla's own launcher sets a process up.
    refused, still = python(
        """
        from torch_xla.core import xla_model as stock
        stock.set_replication("xla:0", stock.get_xla_supported_devices())
        x = torch.ones(1, device=torch_xla.device())
        print(error(lambda: xm.all_reduce("sum", x).item()))
        print((x + 1).item())
        """,
        CPU_NUM_DEVICES="4",
    )
    assert "torch_xla_cc.launch" in refused and not refused.startswith("no error")
    assert still == "2.0"


def test_one_device_needs_no_launch():
    summed, gathered, permuted = python("""
        x = torch.arange(3.0, device=torch_xla.device())
        print(xm.all_reduce("sum", x, scale=2.0).tolist())
        print(xm.all_gather(x).tolist())
        print(xm.collective_permute(x, [[0, 0]]).tolist())
    """)
    assert summed == "[0.0, 2.0, 4.0]"
    assert gathered == permuted == "[0.0, 1.0, 2.0]"


def test_one_of_several_cpu_processes():
    [refused] = python(
        'print(error(xm.all_reduce, "sum", torch.ones(1, device=torch_xla.device())))',
        WORLD_SIZE="4",
        RANK="0",
    )
    assert refused.startswith("RuntimeError") and "WORLD_SIZE=4" in refused
    assert "torch_xla_cc.launch" in refused


def test_eager_mode_from_before_is_refused():
    [refused] = python("""
        torch_xla.experimental.eager_mode(True)
        print(error(torch_xla_cc.launch, total, (), 2, timeout_s=20))
    """)
    assert refused.startswith("RuntimeError") and "eager mode" in refused


def test_torch_xla_is_as_it_was():
    lines = python("""
        OPS = ["_local_scalar_dense", "_to_copy", "_copy_from", "_copy_from_and_resize", "_to_cpu"]
        def kernels():
            return [torch._C._dispatch_dump_table(f"aten::{op}") for op in [*OPS, "nonzero", "add"]]
        def functions():
            return dict(vars(torch_xla._XLAC))
        def compare(before, after):
            return sorted(n for n in {*before, *after} if before.get(n) is not after.get(n))
        def fail(rank):
            during.append((compare(before, functions()), kernels() != kernels_before))
            total(rank)
            if failing:
                raise ValueError
        before, kernels_before = functions(), kernels()
        for failing in (False, True):
            during = []
            error(torch_xla_cc.launch, fail, (), 2)
            print(len(during[0][0]), during[0][1])
            print(compare(before, functions()), kernels() == kernels_before)
    """)
    for during, after in (lines[:2], lines[2:]):
        replaced, kernels_differ = during.split()
        assert int(replaced) > 3 and kernels_differ == "True"
        assert after == "[] True"
