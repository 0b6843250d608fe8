"""Lowered collectives are kept: bounded, counted, by many threads at once, without the GIL."""

import itertools
import random
import sys
import threading
import time

import pytest
import torch
import torch_xla
import worlds

from torch_xla_cc import _C, lowering_for
from torch_xla_cc import xla_model as xm

F32 = 11
CAPACITY = _C.cache_counts()["capacity"]


@pytest.fixture(autouse=True)
def _empty_cache():
    _C.clear_cache()
    with lowering_for("tpu:v5e:2x4"):
        yield
    _C.set_cache_capacity(CAPACITY)
    _C.clear_cache()


def lower(size, dim=0, groups=None):
    return _C.lower_all_gather([(F32, [size, 4])], dim, groups)


def counts():
    now = _C.cache_counts()
    return now["hits"], now["misses"], now["size"]


def test_hits_and_misses_are_counted():
    hits, misses, _ = counts()
    first = lower(8)
    assert counts() == (hits, misses + 1, 1)
    assert lower(8) == first
    assert counts() == (hits + 1, misses + 1, 1)
    lower(9)
    assert counts() == (hits + 1, misses + 2, 2)


HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]
# Calls that differ in one thing each.
CALLS = {
    "size": lambda: lower(9),
    "dim": lambda: lower(8, 1),
    "groups": lambda: lower(8, 0, HALVES),
    "order in a group": lambda: lower(8, 0, [HALVES[0], HALVES[1][::-1]]),
    "type": lambda: _C.lower_all_gather([(10, [8, 4])], 0, None),
    "number": lambda: _C.lower_all_gather([(F32, [8, 4])] * 2, 0, None),
    "as many elements": lambda: _C.lower_all_gather([(F32, [4, 8])], 0, None),
    "rank": lambda: _C.lower_all_gather([(F32, [8, 4, 1])], 0, None),
    "op": lambda: _C.lower_collective_broadcast([(F32, [8, 4])], 0, None),
    "kind": lambda: _C.lower_all_reduce([(F32, [8, 4])], "max", 1.0, 1.0, None),
    "scale": lambda: _C.lower_all_reduce([(F32, [8, 4])], "sum", 0.5, 1.0, None),
    "fraction of a scale": lambda: _C.lower_all_reduce([(F32, [8, 4])], "sum", 0.25, 1.0, None),
    "factor": lambda: _C.lower_all_reduce([(F32, [8, 4])], "premultiplied_sum", 1.0, 0.5, None),
    "pairs": lambda: _C.lower_collective_permute([(F32, [8, 4])], [[0, 1]]),
    "other pairs": lambda: _C.lower_collective_permute([(F32, [8, 4])], [[1, 0]]),
    "channel": lambda: _C.lower_recv([(F32, [8, 4])], 3, [[0, 1]]),
}


def test_calls_that_differ_are_kept_apart():
    made = [lower(8), *(call() for call in CALLS.values())]
    again = [lower(8), *(call() for call in CALLS.values())]
    assert made == again
    assert counts()[2] == len(made)
    assert len({one["fingerprint"] for one in made}) == len(made)


def test_targets_are_kept_apart():
    here = lower(8)
    with lowering_for("tpu:v5e:2x2"):
        smaller = lower(8)
    with lowering_for("gpu:h100x8"):
        gpu = lower(8)
    with lowering_for("gpu:h100", 8):
        named = lower(8)
    with lowering_for("gpu:h100", 4):  # of one name
        half = lower(8)
    assert lower(8) == here
    assert (here["world_size"], smaller["world_size"], gpu["target"]) == (8, 4, "gpu:h100x8")
    assert (named["world_size"], half["world_size"], half["target"]) == (8, 4, named["target"])
    assert counts()[2] == 5


@pytest.mark.parametrize("capacity", [1, 2, 7])
def test_the_size_stays_within_the_capacity(capacity):
    wanted = {size: lower(size) for size in range(1, 30)}
    _C.set_cache_capacity(capacity)
    assert counts()[2] == capacity
    for size in (*range(1, 30), *range(29, 0, -1)):
        assert lower(size) == wanted[size]
        assert counts()[2] <= capacity


def test_the_least_recently_used_goes_first():
    _C.set_cache_capacity(2)
    lower(1), lower(2), lower(1), lower(3)  # 2 has gone
    hits, misses, _ = counts()
    lower(1)
    assert counts()[:2] == (hits + 1, misses)
    lower(2)
    assert counts()[:2] == (hits + 1, misses + 1)


def test_clear_cache():
    before = lower(8)
    _C.clear_cache()
    assert counts()[2] == 0
    assert lower(8) == before


@pytest.mark.parametrize("capacity", [0, -1, 2**70, "8", None])
def test_bad_capacities(capacity):
    with pytest.raises((TypeError, ValueError), match="set_cache_capacity"):
        _C.set_cache_capacity(capacity)
    assert _C.cache_counts()["capacity"] == CAPACITY


def test_threads_lower_at_once_over_a_small_capacity():
    wanted = {size: lower(size) for size in range(1, 40)}
    wrong = []
    start = threading.Barrier(5)

    def work(seed):
        rng = random.Random(seed)
        with lowering_for("tpu:v5e:2x4"):
            start.wait()
            for _ in range(3000):
                size = rng.randrange(1, 40)
                if lower(size) != wanted[size]:
                    wrong.append(size)

    def disturb():
        start.wait()
        for capacity in itertools.islice(itertools.cycle([1, 3, 20]), 300):
            _C.set_cache_capacity(capacity)
            _C.clear_cache()
            time.sleep(0.001)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    threads.append(threading.Thread(target=disturb))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert counts()[2] <= 20


def small_cache_steps(rank, capacity, count):
    """Steps of more collectives than the cache holds; the largest size that the cache had."""
    if rank == 0:
        _C.set_cache_capacity(capacity)
    largest = 0
    for step in range(count):
        x = torch.arange(8.0, device=torch_xla.device()) + rank + step
        gathered = [xm.all_gather(x[:size]) for size in range(1, 9)]
        reduced = [xm.all_reduce(kind, x) for kind in ("sum", "min", "max", "average")]
        moved = xm.collective_permute(x, [(r, (r + 1) % 4) for r in range(4)])
        for size, value in enumerate(gathered, start=1):
            assert value.tolist() == [i + r + step for r in range(4) for i in range(size)]
        base = torch.arange(8.0) + step
        for value, wanted in zip(reduced, (4 * base + 6, base, base + 3, base + 1.5), strict=True):
            assert value.tolist() == wanted.tolist()
        assert moved.tolist() == (base + (rank - 1) % 4).tolist()
        largest = max(largest, _C.cache_counts()["size"])
    if rank == 0:
        _C.set_cache_capacity(CAPACITY)
    return largest


@pytest.mark.parametrize("capacity", [1, 5])
def test_ranks_trace_at_once_over_a_small_capacity(capacity):
    for largest in worlds.run(4, small_cache_steps, capacity, 25, timeout_s=100):
        assert 1 <= largest <= max(capacity, 13)  # the capacity holds from the first call on


def advances_of_another_thread(call):
    """How many times another thread's loop runs while this thread calls.

    The switch interval is so long that it can only run when this thread lets the GIL go.
    """
    laps = 0
    ends = False

    def run():
        nonlocal laps
        while not ends:
            laps += 1
            time.sleep(0)  # lets the GIL go

    thread = threading.Thread(target=run)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(30.0)
    try:
        thread.start()
        before = laps
        call()
        return laps - before
    finally:
        ends = True
        thread.join()
        sys.setswitchinterval(interval)


def test_lowering_does_not_hold_the_gil():
    ranks = random.Random(1).sample(range(4096), 4096)
    groups = [ranks[i : i + 8] for i in range(0, 4096, 8)]

    def lower_long_lists(size):  # takes some 0.1 s
        _C.lower_all_gather([(F32, [8, size])] * 3000, 0, groups)

    def hold():  # as long, in one call of C
        sum(range(3_000_000))

    with lowering_for("gpu", 4096):
        laps = [advances_of_another_thread(lambda s=s: lower_long_lists(s)) for s in range(8)]
    held = [advances_of_another_thread(hold) for _ in range(8)]
    assert max(held) <= 2, "the control does not tell"
    assert sorted(laps)[4] > 50, laps  # a busy machine may not let the other thread run at once
