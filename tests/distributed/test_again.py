"""A world that is ended and made again: nothing of the old one is in it."""

import functools
import signal
import threading
import time
from datetime import timedelta

import processes
import pytest
import torch
import torch.distributed as dist
import torch_xla
import worlds
from torch.distributed.distributed_c10d import _coalescing_manager

import torch_xla_cc
from torch_xla_cc._runtime import device_tensors
from torch_xla_cc._runtime.private import XLAC
from torch_xla_cc.distributed import _groups  # registers the backend

RUN = {"threads": worlds.run, "processes": processes.run}


def made(*size: int, value: float = 1.0) -> torch.Tensor:
    return torch.full(size, float(value), device=torch_xla.device())


def after_a_mismatch(rank):
    found = []
    for _ in range(6):
        dist.init_process_group("xla_cc", timeout=timedelta(seconds=20))
        try:
            dist.all_reduce(made(2 + rank))
            torch_xla.sync()
        except RuntimeError as error:
            found.append(type(error).__name__)
        dist.destroy_process_group()
    dist.init_process_group("xla_cc")
    x = made(2, value=rank)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return found, x.tolist()


@pytest.mark.parametrize("where", RUN)
def test_after_a_mismatch(where):
    assert RUN[where](3, after_a_mismatch) == [(["CollectiveMismatchError"] * 6, [3.0, 3.0])] * 3


def after_a_send_that_nobody_received(rank):
    dist.init_process_group("xla_cc")
    if rank == 0:
        dist.isend(made(2), 1)
    dist.destroy_process_group()
    dist.init_process_group("xla_cc")
    x = made(3, value=7)
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        x.zero_()
        dist.recv(x, 0)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return x.tolist()


def test_after_a_send_that_nobody_received():
    # Between processes ending the world waits for the receiver, as gloo's does.
    assert worlds.run(3, after_a_send_that_nobody_received) == [[21.0] * 3] * 3


def without_a_limit(rank):
    """Longer than clocks count."""
    dist.init_process_group("xla_cc", timeout=timedelta.max)
    x, y = made(2, value=rank), made(2)
    dist.all_reduce(x)
    work = dist.all_reduce(x, async_op=True)
    work.wait(timedelta.max)
    works = [dist.isend(y, 1 - rank), dist.irecv(y, 1 - rank)]
    for work in works:
        work.wait(timedelta.max)
    _groups.monitored_barrier(timeout=timedelta.max)
    group = dist.new_group(timeout=timedelta.max)
    dist.barrier(group=group)
    dist.destroy_process_group()
    return x.tolist(), y.tolist()


def test_without_a_limit():
    assert worlds.run(2, without_a_limit) == [([2.0, 2.0], [1.0, 1.0])] * 2


def waits_without_a_limit(rank):
    """Of works alone: torch's own store takes no such limit from torchrun."""
    dist.init_process_group("xla_cc")
    x, y = made(3, value=rank + 1), made(3)
    works = [dist.all_reduce(x, async_op=True), dist.isend(made(3, value=rank), 1 - rank)]
    works.append(dist.irecv(y, 1 - rank))
    for work in works:
        work.wait(timedelta.max)
    dist.destroy_process_group()
    return x.tolist(), y.tolist()


@pytest.mark.parametrize("where", RUN)
def test_waits_without_a_limit(where):
    for rank, found in enumerate(RUN[where](2, waits_without_a_limit)):
        assert found == ([3.0] * 3, [1.0 - rank] * 3)


def after_an_error_among_coalesced(rank):
    """PyTorch does not end what an error has left."""
    dist.init_process_group("xla_cc")
    group = dist.group.WORLD
    device = torch.device("xla")
    half = dist._make_nccl_premul_sum(0.5)
    found = []
    for _ in range(2):
        group._start_coalescing(device)
        group.allreduce([made(2)]).wait()
        try:
            dist.all_reduce(made(2).int(), half)
        except ValueError as error:
            found.append("factor = 0.5" in str(error))
    x = made(2)
    dist.all_reduce(x)  # runs at once
    pending = torch_xla._XLAC._check_tensor_need_materialization([x])[0]
    group._start_coalescing(device)
    y = made(3)
    dist.all_reduce(y)
    group._end_coalescing(device).wait()
    dist.destroy_process_group()
    return found, pending, x.tolist(), y.tolist()


@pytest.mark.parametrize("where", RUN)
def test_after_an_error_among_coalesced(where):
    expected = [True, True], False, [2.0, 2.0], [2.0] * 3
    assert RUN[where](2, after_an_error_among_coalesced) == [expected] * 2


def waited_for_by_several(rank):
    """Threads of one rank that wait for one send and one receive."""
    dist.init_process_group("xla_cc")
    found = []
    for number in range(20):
        x = made(3, value=rank + number)
        y = torch.zeros_like(x)
        works = [dist.isend(x, 1 - rank), dist.irecv(y, 1 - rank)]
        threads = [
            threading.Thread(target=function)
            for work in works
            for function in (work.wait, work.is_completed, work.wait)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for work in works:
            work.wait()
        found.append(y.tolist() == [1.0 - rank + number] * 3)
    dist.destroy_process_group()
    return all(found)


def test_waited_for_by_several():
    assert processes.run(2, waited_for_by_several) == [True] * 2


class OwnError(Exception):
    pass


def after_an_error_in_a_batch(rank):
    dist.init_process_group("xla_cc")
    x = made(2, value=rank + 1)

    def exchange(tag, device=None):
        y = torch.zeros_like(x, device=device)
        ends = [dist.P2POp(dist.irecv, y, 1 - rank, tag=tag)]
        ends.append(dist.P2POp(dist.isend, x, 1 - rank, tag=tag))
        for work in dist.batch_isend_irecv(ends):
            work.wait()
        return y.tolist()

    def nested():
        with _coalescing_manager():
            dist.all_reduce(total)
            with pytest.raises(ValueError, match="non-empty op list"), _coalescing_manager():
                pass

    def leaves(by):
        with _coalescing_manager(async_ops=by):
            dist.all_reduce(x.clone())
            raise OwnError

    found = []
    wrong = [
        (ValueError, lambda: exchange(-5)),
        (TypeError, lambda: exchange(2**31)),
        (RuntimeError, lambda: exchange(3, "cpu")),
        (OwnError, lambda: leaves(False)),
        (OwnError, lambda: leaves(True)),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call()
        total = made(2, value=rank + 1)
        dist.all_reduce(total)
        found.append((total.tolist(), exchange(3)))
    total = made(2, value=rank + 1)
    nested()  # the outer one goes on
    found.append((total.tolist(), exchange(3)))
    with pytest.raises(OwnError), _coalescing_manager(dist.GroupMember.NON_GROUP_MEMBER):
        raise OwnError
    dist.destroy_process_group()
    return found


@pytest.mark.parametrize("where", RUN)
def test_after_an_error_in_a_batch(where):
    for rank, found in enumerate(RUN[where](2, after_an_error_in_a_batch)):
        assert found == [([3.0, 3.0], [2.0 - rank] * 2)] * 6


def after_the_deadline(rank):
    """What is left of a time limit may be less than nothing."""
    dist.init_process_group("xla_cc", timeout=timedelta(seconds=30))
    store = dist.distributed_c10d._get_default_store()
    seconds = 0.0
    if rank == 0:
        work = dist.irecv(made(2), 1)
        begin = time.monotonic()
        with pytest.raises(RuntimeError):
            work.wait(timedelta(seconds=-3))
        seconds = time.monotonic() - begin
        store.set("is late", "")
    store.wait(["is late"], timedelta(seconds=50))  # else the receive may find that rank 1 has left
    dist.destroy_process_group()
    return seconds


@pytest.mark.parametrize("where", RUN)
def test_after_the_deadline(where):
    assert max(RUN[where](2, after_the_deadline)) < 3


def a_group_without_a_limit(rank):
    dist.init_process_group("xla_cc", timeout=timedelta(seconds=30))
    group = dist.new_group(timeout=timedelta.max)
    x = made(2)
    dist.all_reduce(x, group=group)
    dist.destroy_process_group()
    return x.tolist()


def test_a_group_without_a_limit():
    assert processes.run(2, a_group_without_a_limit) == [[2.0, 2.0]] * 2


def not_in_the_memory_of_the_host(rank):
    """As on a TPU or GPU, whose memory the host cannot read."""
    before = device_tensors.of_host, XLAC._to_dlpack, XLAC._from_dlpack
    device_tensors.of_host = lambda: False
    XLAC._to_dlpack = XLAC._from_dlpack = None
    try:
        dist.init_process_group("xla_cc")
        x = made(2, 3, value=rank + 1)
        dist.all_reduce(x)
        outputs = [made(size + 1) for size in range(2)]
        dist.all_gather(outputs, made(rank + 1, value=rank))
        y = made(5, value=rank).bfloat16()
        works = [dist.isend(y, 1 - rank), dist.irecv(z := torch.zeros_like(y), 1 - rank)]
        for work in works:
            work.wait()
        dist.destroy_process_group()
        return x.tolist(), [output.tolist() for output in outputs], z.tolist()
    finally:
        device_tensors.of_host, XLAC._to_dlpack, XLAC._from_dlpack = before


def test_not_in_the_memory_of_the_host():
    for rank, found in enumerate(processes.run(2, not_in_the_memory_of_the_host)):
        assert found == ([[3.0] * 3] * 2, [[0.0], [1.0, 1.0]], [1.0 - rank] * 5)


def _outcome(call):
    began = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        return type(error).__name__, time.monotonic() - began < 10
    return "", True


def _all_reduce_within(seconds, x, group):
    """The limit is of the call: gloo may need longer to connect a group on a busy machine."""
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=seconds)
    group.allreduce([x], options).wait()


def after_a_time_limit(rank):
    """Only the group whose limit it was has failed, also for who comes later or never."""
    found = []
    for comes in (True, False):
        dist.init_process_group("xla_cc", timeout=timedelta(seconds=20))
        dist.barrier()
        pair = dist.new_group([0, 1])
        if rank == 0:
            found.append(_outcome(functools.partial(_all_reduce_within, 1, made(2), pair)))
        if rank == 1:
            time.sleep(2)
        x = made(2)
        dist.all_reduce(x)
        if rank == 1 and comes:
            found.append(_outcome(functools.partial(dist.all_reduce, made(2), group=pair)))
        found.append(x.tolist())
        dist.destroy_process_group()
    return found


@pytest.mark.parametrize("where", RUN)
def test_after_a_time_limit(where):
    late = ("CollectiveTimeoutError", True)
    right = [3.0, 3.0]
    by_rank = RUN[where](3, after_a_time_limit)
    assert by_rank == [[late, right, late, right], [late, right, right], [right, right]]


def waits_often_for_what_failed(rank):
    """Also from other threads, at once."""
    dist.init_process_group("xla_cc", timeout=timedelta(seconds=20))
    work = dist.isend(made(4), 1) if rank == 0 else dist.irecv(made(5), 0)
    found = []
    threads = [threading.Thread(target=lambda: found.append(_outcome(work.wait))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.append(_outcome(work.wait))
    dist.destroy_process_group()
    return found


def test_waits_often_for_what_failed():
    wrong = [("CollectiveMismatchError", True)] * 4
    assert processes.run(2, waits_often_for_what_failed) == [wrong] * 2


def in_two_groups(rank, how):
    """Groups of the same ranks are not one."""
    dist.init_process_group("xla_cc", timeout=timedelta(seconds=60))
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    order = (0, 1) if rank == 0 or how == "alike" else (1, 0)
    made_of = [made(2, value=1.0), made(2, value=10.0)]
    try:
        if how == "one each":
            _all_reduce_within(5, made_of[rank], groups[rank])
        else:
            works = [dist.all_reduce(made_of[i], group=groups[i], async_op=True) for i in order]
            for work in works:
                work.wait()
        found = [x.tolist() for x in made_of]
    except torch_xla_cc.RanksDisagree as error:
        found = str(error)
    dist.destroy_process_group()
    dist.init_process_group("xla_cc")
    x = made(1)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return found, x.tolist()


@pytest.mark.parametrize("where", RUN)
def test_two_groups_of_the_same_ranks(where):
    right = [[2.0, 2.0], [20.0, 20.0]]
    for found, after in RUN[where](2, in_two_groups, "alike"):
        assert (found, after) == (right, [2.0])
    # Ranks on threads have one order of all groups.
    for found, after in RUN[where](2, in_two_groups, "crossed"):
        if where == "threads":
            assert "in different groups of torch.distributed" in found
        else:
            assert found == right
        assert after == [2.0]
    for found, after in RUN[where](2, in_two_groups, "one each"):
        assert isinstance(found, str) and after == [2.0]


def one_has_ended(rank, op):
    dist.init_process_group("xla_cc", timeout=timedelta(seconds=60))
    if rank == 0:
        return ""
    begin = time.monotonic()
    calls = {"barrier": dist.barrier, "recv": lambda: dist.recv(made(2), 0)}
    try:
        calls[op]()
    except torch_xla_cc.RanksDisagree as error:
        assert time.monotonic() - begin < 10
        return str(error)
    return "nothing was raised"


@pytest.mark.parametrize("op", ["barrier", "recv"])
def test_waiting_for_a_rank_that_has_ended(op):
    assert "has ended without calling it" in worlds.run(2, one_has_ended, op)[1]


def over_before_it_began(rank):
    """A group is made with what is left of a limit, by one rank."""
    dist.init_process_group("xla_cc", timeout=timedelta(seconds=30))
    begin = time.monotonic()
    if rank == 0:
        with pytest.raises(RuntimeError):
            dist.new_group([0, 1], timeout=timedelta(seconds=-3))
    return time.monotonic() - begin


def test_a_group_whose_limit_is_over():
    with processes.Processes(2) as ranks:
        assert max(ranks.run(over_before_it_began)) < 10


def asked_for_by_a_signal(rank):
    """A handler asks for a Work while its thread is in a call."""
    dist.init_process_group("xla_cc", timeout=timedelta(seconds=30))
    x = made(4)
    work = dist.all_reduce(x, async_op=True)
    asked = []
    before = signal.signal(signal.SIGALRM, lambda *_: asked.append(work.is_completed()))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        for i in range(20):
            dist.all_reduce(made(3 + i))  # a graph that is compiled
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    work.wait()
    dist.destroy_process_group()
    return bool(asked), x.tolist()


def test_asked_for_by_a_signal():
    assert processes.run(2, asked_for_by_a_signal) == [(True, [2.0] * 4)] * 2


def multiplied_alone(rank):
    dist.init_process_group("xla_cc")
    own = [dist.new_group([i]) for i in range(2)][rank]
    found = []
    for factor in (300.0, -1.0, 1e5):
        x = made(2).to(torch.int8)
        dist.all_reduce(x, dist._make_nccl_premul_sum(factor), group=own)
        found.append(x.tolist())
    dist.destroy_process_group()
    return found


@pytest.mark.parametrize("where", RUN)
def test_factors_that_wrap_around(where):
    wanted = [[300 - 256] * 2, [-1] * 2, [100_000 % 256 - 256] * 2]
    assert RUN[where](2, multiplied_alone) == [wanted] * 2


def sent_by_threads(rank):
    """Several threads of a process send and receive what has been computed."""
    dist.init_process_group("xla_cc", timeout=timedelta(seconds=30))
    xs = [made(3, value=10 * rank + i) for i in range(5)]
    ys = [made(3) for _ in xs]
    torch_xla.sync(wait=True)

    def exchange(i):
        works = [dist.isend(xs[i], 1 - rank, tag=i), dist.irecv(ys[i], 1 - rank, tag=i)]
        for work in works:
            work.wait()

    threads = [threading.Thread(target=exchange, args=(i,)) for i in range(len(xs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [y.tolist() for y in ys]
    dist.destroy_process_group()
    return found


def test_sent_by_threads():
    for rank, found in enumerate(processes.run(2, sent_by_threads)):
        assert found == [[10.0 * (1 - rank) + i] * 3 for i in range(5)]
