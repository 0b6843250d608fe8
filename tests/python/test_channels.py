"""send and recv: through a Channel, in the graph; by a bare number, between two ranks."""

import time

import pytest
import torch
import torch_xla
import worlds

import torch_xla_cc
from torch_xla_cc import _C, Channel, RanksDisagree, lowering_for
from torch_xla_cc import xla_model as xm

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


def value_of(rank, *shape, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return (torch.arange(count).reshape(shape) + 10 * rank).to(dtype).to(torch_xla.device())


def exchange(rank, pairs, shape, dtype):
    sent = value_of(rank, *shape, dtype=dtype)
    channel = Channel(pairs)
    returned = xm.send(sent, channel)
    received = xm.recv(torch.empty_like(sent), channel)
    return returned.cpu(), received.cpu()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("pairs", "shape"),
    [
        (RING, (3, 2)),
        (RING, ()),
        (RING, (0, 4)),
        ([(0, 2), (2, 0)], (5,)),
        ([(1, 3)], (2, 2, 2)),
        ([(2, 2)], (3,)),
    ],
    ids=str,
)
def test_every_rank_sends_and_receives(pairs, shape, dtype):
    source_of = {target: source for source, target in pairs}
    for rank, (returned, received) in enumerate(worlds.run(4, exchange, pairs, shape, dtype)):
        wanted = (torch.arange(torch.Size(shape).numel()).reshape(shape)).int()
        assert torch.equal(returned, (wanted + 10 * rank).to(dtype))
        here = wanted + 10 * source_of[rank] if rank in source_of else wanted * 0
        assert received.dtype == dtype
        assert torch.equal(received, here.to(dtype))


def shapes(rank):
    channel = Channel(RING)
    received = []
    for shape in ((2, 3), [2, 3], torch.Size([2, 3])):
        xm.send(value_of(rank, 2, 3), channel)
        received.append(xm.recv(shape, channel))
    xm.send(value_of(rank, 4, dtype=torch.int32), channel)
    received.append(xm.recv((4,), channel, torch.int32))
    xm.send(value_of(rank, dtype=torch.bfloat16), channel)
    received.append(xm.recv((), channel, dtype=torch.bfloat16))
    return [tensor.cpu() for tensor in received]


def test_a_shape_stands_for_a_tensor():
    for rank, received in enumerate(worlds.run(4, shapes)):
        source = (rank - 1) % 4
        dtypes = [torch.float32] * 3 + [torch.int32, torch.bfloat16]
        sizes = [(2, 3)] * 3 + [(4,), ()]
        assert [tensor.dtype for tensor in received] == dtypes
        assert [tuple(tensor.shape) for tensor in received] == sizes
        assert all(tensor.flatten()[0].item() == 10 * source for tensor in received)


def several(rank):
    """Three channels in flight, received in another order; then one channel twice."""
    ring, back = Channel(RING), Channel([(b, a) for a, b in RING])
    tagged = Channel(RING, tag=1)
    x = value_of(rank, 2)
    xm.send(x, ring)
    xm.send(x + 100, tagged)
    xm.send(x + 200, back)
    received = [xm.recv((2,), channel) for channel in (back, ring, tagged)]
    xm.send(x + 300, ring)
    xm.send(x + 400, ring)
    received += [xm.recv((2,), ring), xm.recv((2,), ring)]
    return [int(tensor[0].item()) for tensor in received]


def test_several_channels_in_flight_and_first_in_first_out():
    for rank, received in enumerate(worlds.run(4, several)):
        before, after = 10 * ((rank - 1) % 4), 10 * ((rank + 1) % 4)
        assert received == [200 + after, before, 100 + before, 300 + before, 400 + before]


def pipeline(rank, steps):
    """Data that passes all ranks, a stage a step, with a collective and an execution between."""
    channel = Channel(RING[:-1])
    x = value_of(rank, 2)
    for _ in range(steps):
        xm.send(x + 1, channel)
        received = xm.recv((2,), channel)
        x = received + xm.all_reduce(xm.REDUCE_MIN, x) * 0
        torch_xla.sync()
    return x.tolist()


def test_a_pipeline_of_steps():
    results = worlds.run(4, pipeline, 3)
    # What rank 0 had arrives after three steps, one larger in each; behind it come the zeros.
    assert results == [[0, 0], [1, 1], [2, 2], [3, 4]]


@pytest.mark.parametrize(
    ("target", "pairs", "send", "recv"),
    [
        ("cpu", RING, [], ["all-gather"]),
        ("tpu:v5e:2x2", RING, [], ["collective-permute"]),
        ("gpu:h100x4", RING[:-1], ["send"], ["recv"]),
        ("gpu:h100x4", RING, [], ["collective-permute"]),  # its native pair may not be a circle
    ],
)
def test_what_the_two_become(target, pairs, send, recv):
    with lowering_for(target, 4):
        functions = (_C.lower_send, _C.lower_recv)
        lowered = [function([(11, [2])], 1 << 20, pairs) for function in functions]
    assert [one["opcodes"] for one in lowered] == [send, recv]


def fails(rank, case):
    """The error that a wrong use raises on this rank."""
    channel = Channel([(0, 1)], tag=77)
    x = value_of(rank, 2)
    try:
        if case == "no send":
            xm.recv(x, channel)
        elif case == "another tag":
            xm.send(x, Channel([(0, 1)], tag=78))
            xm.recv(x, channel)
        elif case == "received twice":
            xm.send(x, channel)
            xm.recv(x, channel)
            xm.recv(x, channel)
        elif case == "shape":
            xm.send(x, channel)
            xm.recv((3,), channel)
        elif case == "dtype":
            xm.send(x, channel)
            xm.recv((2,), channel, torch.int32)
    except Exception as error:
        return type(error).__name__, str(error)
    return None


@pytest.mark.parametrize("case", ["no send", "another tag", "received twice"])
def test_recv_without_send(case):
    for kind, message in worlds.run(4, fails, case):
        assert kind == "RuntimeError"
        assert "Channel(pairs=((0, 1),), tag=77) has no send before it" in message


@pytest.mark.parametrize(
    ("case", "wanted"), [("shape", ["[2]", "[3]"]), ("dtype", ["torch.float32", "torch.int32"])]
)
def test_recv_of_something_else_than_what_was_sent(case, wanted):
    for kind, message in worlds.run(4, fails, case):
        assert kind == "ValueError"
        assert message.startswith("recv: ") and "tag=77" in message
        assert all(word in message for word in wanted)


def only_some_receive(rank):
    channel = Channel([(0, 1)])
    xm.send(value_of(rank, 2), channel)
    if rank < 2:
        xm.recv((2,), channel)
    torch_xla.sync()


def test_a_channel_is_for_all_ranks():
    with pytest.raises(RanksDisagree, match=r"recv.*test_channels\.py"):
        worlds.run(4, only_some_receive)


def leave_something(rank):
    xm.send(value_of(rank, 2), Channel([(0, 1)], tag=5))
    if rank == 0:
        xm.send(value_of(rank, 2), 9)


def find_something(rank):
    found = []
    for channel in (Channel([(0, 1)], tag=5), 9) if rank == 1 else ():
        try:
            found.append(xm.recv((2,), channel).tolist())
        except RuntimeError as error:
            found.append(type(error).__name__)
    return found


def test_a_launch_starts_with_empty_channels():
    worlds.run(4, leave_something)
    results = worlds.run(4, find_something, launch_timeout_s=2)
    assert results == [[], ["RuntimeError", "RanksDisagree"], [], []]


# By bare numbers: only the two ranks call.
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
    if rank == 0:
        xm.send(x, 7)
    if rank == 1:
        try:
            if case == "shape":
                xm.recv((3,), 7)
            elif case == "dtype":
                xm.recv((2,), 7, torch.int32)
            else:
                xm.recv((2,), 8)
        except Exception as error:
            return type(error).__name__, str(error)
    return None


@pytest.mark.parametrize(
    ("case", "kind", "wanted"),
    [
        ("shape", "ValueError", ["channel 7", "[2]", "[3]"]),
        ("dtype", "ValueError", ["channel 7", "torch.float32", "torch.int32"]),
        ("number", "RanksDisagree", ["channel 8", "2 s"]),
    ],
)
def test_wrong_uses_of_a_bare_number(case, kind, wanted):
    results = worlds.run(4, bare_fails, case, launch_timeout_s=2)
    assert results[0] is results[2] is results[3] is None
    assert results[1][0] == kind
    assert all(word in results[1][1] for word in ["recv", *wanted])


def bare_alone(rank):
    return xm.send(torch.ones(2, device=torch_xla.device()), 7)


def test_a_bare_number_needs_several_ranks_on_threads():
    with pytest.raises(ValueError, match=r"torch_xla_cc\.Channel\(pairs="):
        worlds.run(1, bare_alone)


def test_channels_are_values():
    assert Channel([[0, 1]], 2) == torch_xla_cc.Channel(((0, 1),), tag=2)
    assert len({Channel(RING), Channel(RING), Channel(RING, 1), Channel(RING[:1])}) == 3
    assert Channel(RING).id != Channel(RING, 1).id
    assert Channel(RING, 2**20 - 1).id < 2**31
    with pytest.raises(AttributeError):
        Channel(RING).tag = 3
