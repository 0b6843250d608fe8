"""launch: results, failures, and that torch_xla is as it was afterwards."""

import ast
import os
import re
import sys
import textwrap
import threading
import time
import warnings

import forks
import pytest
import torch
import torch_xla
import worlds
from torch_xla.core import xla_model as stock

import torch_xla_cc
from torch_xla_cc import xla_model as xm
from torch_xla_cc._runtime import environment

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


def leave_well(rank, code):
    if rank == 0:
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=torch_xla.device()))
        sys.exit(code)
    time.sleep(0.5)  # it has left by then
    return xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device=torch_xla.device())).tolist()


@pytest.mark.parametrize("code", [None, 0])
def test_a_rank_that_leaves_well_has_ended(code):
    assert worlds.run(2, leave_well, code) == [None, [2.0, 2.0]]


def nested(rank):
    import torch_xla_cc

    return torch_xla_cc.launch(result, ("inner",), 2, timeout_s=20)


def test_launch_inside_of_a_rank_is_an_error():
    with worlds.World(2) as world:  # of its own, as above
        with pytest.raises(RuntimeError, match="launch"):
            world.run(nested, timeout_s=50)
        assert world.run(result, "after")[1]["sum"] == [1.0, 1.0]


def trained(rank, eager):
    """A loop for eager mode: no step ends, but for those of the optimizer."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch_xla.experimental.eager_mode(eager)
    assert torch_xla.experimental.is_eager_mode() == eager
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.ones(3, 2).to(torch_xla.device()))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    doubled = torch_xla.compile(lambda x: 2 * x)
    pending = []
    for step in range(3):
        optimizer.zero_grad()
        x = torch.full((5, 3), rank + step + 1.0, device=weight.device)
        (doubled(x) @ weight).square().mean().backward()
        weight.grad = xm.all_reduce("sum", weight.grad)
        optimizer.step()
        pending.append(torch_xla._XLAC._check_tensor_need_materialization([weight])[0])
    assert torch_xla.experimental.is_eager_mode() == eager
    return weight.tolist(), any(pending), [str(one.message) for one in caught]


def test_eager_mode():
    ranks = zip(worlds.run(2, trained, True), worlds.run(2, trained, False), strict=True)
    for (eager, pending, [says]), (lazy, _, nothing) in ranks:
        assert eager == lazy and not pending and not nothing
        assert "eager mode" in says and "lazily" in says


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


def test_autograds_engine_is_there_before_the_ranks():
    """What a fork leaves to make anew is not made on two threads at once."""
    [found] = python("""
        from unittest import mock
        from torch_xla_cc._threads import launch
        with mock.patch.object(launch, "autograd_engine") as engine:
            print(torch_xla_cc.launch(lambda rank: engine.is_checkpoint_valid.called, (), 2))
    """)
    assert found == "[True, True]"


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


@pytest.mark.parametrize("number", ["0", "129"])
def test_a_number_of_devices_that_cannot_be(number):
    [refused] = python("print(error(torch_xla_cc.launch, total))", CPU_NUM_DEVICES=number)
    assert refused.startswith(f"ValueError: launch: CPU_NUM_DEVICES = {number}, but it must be 1")


@pytest.mark.parametrize(
    ("env", "least"),
    [({}, 5), ({"XLA_THREAD_POOL_SIZE": "1"}, 5), ({"XLA_THREAD_POOL_SIZE": "17"}, 17)],
)
def test_the_thread_pool_is_large_enough(env, least):
    results, size = python(
        """
        def size(rank):
            return os.environ["XLA_THREAD_POOL_SIZE"]
        print(torch_xla_cc.launch(total, (), 5))
        print(torch_xla_cc.launch(size)[0])
        """,
        **env,
    )
    assert results == str([5.0] * 5)
    assert int(size) >= least


def test_the_environment_is_as_it_was():
    """For processes that are started later; and the devices are known without it."""
    [first, changed, again] = python("""
        before = dict(os.environ)
        print(torch_xla_cc.launch(total, (), 2))
        print(before.items() ^ os.environ.items())
        print(torch_xla_cc.launch(total))
    """)
    assert first == again == "[2.0, 2.0]"
    assert changed == "set()"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ((print, 5), "TypeError: launch: args = 5, but it must be a list or tuple"),
        ((print, "ab"), "TypeError: launch: args = 'ab', but it must be a list or tuple"),
        ((5,), "TypeError: launch: fn = 5, but it must be a function"),
    ],
)
def test_wrong_arguments(arguments, wanted):
    with pytest.raises(TypeError) as raised:
        torch_xla_cc.launch(*arguments)
    assert f"TypeError: {raised.value}".startswith(wanted)


@pytest.mark.parametrize("text", ["10m", "", "0", "nan"])
def test_wrong_time_limits(text, monkeypatch):
    monkeypatch.setenv("TORCH_XLA_CC_TIMEOUT_S", text)
    with pytest.raises(ValueError, match=f"launch: TORCH_XLA_CC_TIMEOUT_S = '{text}', but it"):
        torch_xla_cc.launch(print)
    with pytest.raises(ValueError, match=r"launch: timeout_s = \[1\], but"):
        torch_xla_cc.launch(print, timeout_s=[1])
    with pytest.raises(ValueError, match=r"launch: timeout_s = 10*\.{3}, but"):
        torch_xla_cc.launch(print, timeout_s=10**400)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("CPU_NUM_DEVICES", "0", "launch: CPU_NUM_DEVICES = 0, but it must be 1 to 128"),
        ("CPU_NUM_DEVICES", "1000", "launch: CPU_NUM_DEVICES = 1000, but it must be 1 to 128"),
        ("CPU_NUM_DEVICES", "²", "launch: CPU_NUM_DEVICES = '²', but it must be a number"),
        ("PJRT_DEVICE", "cpu", "launch: PJRT_DEVICE = 'cpu', but it must be in capitals"),
    ],
)
def test_wrong_variables(name, text, wanted, monkeypatch):
    monkeypatch.setattr("torch_xla_cc._threads.cpu_devices._started", None)
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=re.escape(wanted)):
        torch_xla_cc.launch(print)


def test_a_wrong_number_of_processes(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "x")
    with pytest.raises(ValueError, match="WORLD_SIZE = 'x', but it must be a number"):
        environment.number("WORLD_SIZE", 1)


def test_a_time_limit_where_ranks_are_processes(monkeypatch):
    module = sys.modules["torch_xla_cc._threads.launch"]
    monkeypatch.setattr(module.runtime, "device_type", lambda: "TPU")
    monkeypatch.setattr(module, "_launch_processes", lambda *_: ["ran"])
    with pytest.warns(RuntimeWarning, match="launch: timeout_s = 3 means nothing on TPU"):
        assert torch_xla_cc.launch(print, timeout_s=3) == ["ran"]


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


def test_eager_mode_from_before():
    lines = python("""
        torch_xla.experimental.eager_mode(True)
        print(torch_xla_cc.launch(total, (), 2, timeout_s=20))
        print(torch_xla.experimental.is_eager_mode(), torch_xla._XLAC._get_use_eager_mode())
    """)
    assert lines == ["[2.0, 2.0]", "True True"]


def test_launchers_of_torch_xla():
    lines = python(
        """
        from torch_xla import runtime as xr
        from torch_xla._internal import pjrt
        from torch_xla.core import xla_model
        from torch_xla.distributed import xla_multiprocessing
        import torch.distributed as dist
        def ran(index, add):
            assert index == xr.global_ordinal()
            x = torch.ones(2, device=torch_xla.device()) * (index + add)
            found[index] = xla_model.all_gather(x).tolist()
        def trained(index):
            dist.init_process_group("xla", init_method="xla://")
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1).to("xla"))
            model(torch.ones(2, 3, device="xla") * (index + 1)).sum().backward()
            found[index] = model.module.weight.grad.tolist()
        torch_xla_cc.install()
        for launch in (torch_xla.launch, xla_multiprocessing.spawn, pjrt.spawn_threads):
            found = {}
            assert launch(ran, args=(1,)) is None
            print(found)
        print(pjrt.run_multiprocess(lambda add: xr.global_ordinal() + add, 7))
        found = {}
        pjrt.spawn_threads(trained)
        print(found)
        def fails(index):
            if index == 1:
                raise KeyError("this")
            xla_model.all_reduce("sum", torch.ones(1, device="xla")).item()
        print(error(torch_xla.launch, fails))
        """,
        CPU_NUM_DEVICES="2",
    )
    gathered = {0: [1.0, 1.0, 2.0, 2.0], 1: [1.0, 1.0, 2.0, 2.0]}
    assert [ast.literal_eval(line) for line in lines[:5]] == [
        *[gathered] * 3,
        {0: 7, 1: 8},
        {0: [[3.0] * 3], 1: [[3.0] * 3]},
    ]
    assert lines[5].startswith("KeyError")


def test_one_process_of_torch_xla_is_a_world_of_one():
    lines = python(
        """
        from torch_xla import runtime as xr
        from torch_xla.core import xla_model
        from torch_xla.distributed import xla_multiprocessing
        def ran(index):
            x = xla_model.all_reduce("sum", torch.ones(2, device=torch_xla.device()))
            print(index, xr.world_size(), x.tolist())
        torch_xla_cc.install()
        torch_xla.launch(ran, debug_single_process=True)
        xla_multiprocessing.spawn(ran, nprocs=1)
        """,
        CPU_NUM_DEVICES="4",
    )
    assert lines == ["0 1 [1.0, 1.0]"] * 2


def test_backend_of_torch_xla_in_a_launch():
    """Without install(): torch_xla's own would end the process."""
    lines = python("""
        import torch.distributed as dist
        def ran(rank):
            dist.init_process_group("xla", init_method="xla://")
            torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1).to("xla"))
            x = torch.ones(2, device="xla")
            dist.all_reduce(x)
            return x.tolist()
        print(torch_xla_cc.launch(ran, (), 2, timeout_s=20))
    """)
    assert lines == ["[[2.0, 2.0], [2.0, 2.0]]"]


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


@pytest.mark.parametrize(("text", "on"), [(None, False), ("0", False), ("", False), ("1", True)])
def test_a_switch_in_the_environment(text, on, monkeypatch):
    if text is not None:
        monkeypatch.setenv("TORCH_XLA_CC_DEBUG", text)
    assert environment.switch("TORCH_XLA_CC_DEBUG") == on


def test_a_switch_in_the_environment_that_is_none(monkeypatch):
    monkeypatch.setenv("TORCH_XLA_CC_DEBUG", "true")
    with pytest.raises(ValueError, match="TORCH_XLA_CC_DEBUG = 'true', but it must be 0 or 1"):
        environment.switch("TORCH_XLA_CC_DEBUG")
