"""send and recv by a bare number, between two ranks that are threads: only those two call."""

import time

import pytest
import torch
import torch_xla
import worlds
from messages import DTYPES, line, message_of, value_of

from torch_xla_cc import xla_model as xm


def between_two(rank, dtype, shape):
    if rank == 1:
        xm.send(value_of(rank, *shape, dtype=dtype), 7)
    if rank == 3:
        time.sleep(0.1)
        return xm.recv(shape, 7, dtype).cpu()
    return None


@pytest.mark.parametrize("shape", [(3, 2), (), (0, 4), (1 << 18,)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_bare_number_between_two_ranks(dtype, shape):
    received = worlds.run(4, between_two, dtype, shape)
    wanted = torch.arange(torch.Size(shape).numel()).reshape(shape) + 10
    assert received[:3] == [None] * 3
    assert received[3].dtype == dtype
    assert torch.equal(received[3], wanted.to(dtype))


def ping_pong(rank, laps):
    """Ranks 0 and 1 and ranks 2 and 3 at once, both ways, in order."""
    there, back = (1, 2) if rank < 2 else (3, 4)
    x = value_of(rank, 2)
    for _ in range(laps):
        if rank % 2 == 0:
            xm.send(x + 1, there)
            xm.send(x + 2, there)
            x = xm.recv(x, back)
        else:
            first, second = xm.recv(x, there), xm.recv(x, there)
            x = first * 0 + second if (second > first).all().item() else first * 0 - 1
            xm.send(x, back)
    return x.tolist()


def test_both_ways_and_in_order():
    assert worlds.run(4, ping_pong, 5) == [[10, 11], [10, 11], [30, 31], [30, 31]]


def beside_collectives(rank, when):
    """Ranks 0 and 3 exchange while all ranks have collectives that have not run."""
    x = value_of(rank, 2)
    received = None
    if when == "before" and rank == 0:
        xm.send(x + 5, 7)
    total = xm.all_reduce(xm.REDUCE_SUM, x)
    pairs = xm.all_reduce(xm.REDUCE_SUM, x, groups=[[0, 3], [1, 2]])
    if when == "after" and rank == 0:
        xm.send(x + 5, 7)
    if when == "its result" and rank == 0:
        xm.send(total, 7)
    if rank == 3:
        received = xm.recv((2,), 7).tolist()
    torch_xla.sync()
    return total.tolist(), pairs.tolist(), received


@pytest.mark.parametrize("when", ["before", "after", "its result"])
def test_beside_pending_collectives(when):
    results = worlds.run(4, beside_collectives, when)
    for total, pairs, _ in results:
        assert total == [60, 64]
        assert pairs == [30, 32]
    assert results[3][2] == ([60, 64] if when == "its result" else [5, 6])


def bare_fails(rank, case):
    x = value_of(rank, 2)
    told = None
    if rank == 0:
        xm.send(x, 7)
    if rank == 1 and case == "shape":
        told = message_of(lambda: xm.recv((3,), 7))
    elif rank == 1 and case == "dtype":
        told = message_of(lambda: xm.recv((2,), 7, torch.int32))
    elif rank == 1:
        told = message_of(lambda: xm.recv((2,), 8))
        xm.recv((2,), 7)
    return told


@pytest.mark.parametrize(
    ("case", "kind", "at", "wanted"),
    [
        ("shape", "ValueError", 6, ["[2]", "[3]"]),
        ("dtype", "ValueError", 8, ["torch.float32", "torch.int32"]),
        ("number", "RanksDisagree", 10, ["channel 8 in 2 s", "rank 1", "by rank 0"]),
    ],
)
def test_wrong_uses_of_a_bare_number(case, kind, at, wanted):
    results = worlds.run(4, bare_fails, case, launch_timeout_s=2)
    assert results[0] is results[2] is results[3] is None
    assert results[1][0] == kind
    lines = [line(bare_fails, 4), line(bare_fails, at)]
    assert all(word in results[1][1] for word in ["recv: ", "channel 7", *lines, *wanted])


def bare_alone(rank):
    return xm.send(torch.ones(2, device=torch_xla.device()), 7)


def test_a_bare_number_needs_several_ranks_on_threads():
    with pytest.raises(ValueError, match=r"torch_xla_cc\.Channel\(pairs="):
        worlds.run(1, bare_alone)
