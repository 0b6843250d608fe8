"""send and recv through a Channel, in the graph."""

import contextlib

import pytest
import torch
import torch_xla
import worlds
from messages import DTYPES, line, message_of, value_of

import torch_xla_cc
from torch_xla_cc import _C, Channel, lowering_for
from torch_xla_cc import xla_model as xm

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


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
        ("cpu", RING, [], ["all-gather"] * 2),
        ("tpu:v5e:2x2", RING, [], ["collective-permute"]),
        ("gpu:h100x4", RING[:-1], [], ["collective-permute"]),  # docs/gpu.md
        ("gpu:h100x4", RING, [], ["collective-permute"]),
    ],
)
def test_what_the_two_become(target, pairs, send, recv):
    with lowering_for(target, 4):
        functions = (_C.lower_send, _C.lower_recv)
        lowered = [function([(11, [2])], 1 << 20, pairs) for function in functions]
    assert [one["opcodes"] for one in lowered] == [send, recv]


# Wrong uses: the message names the channel and, for each end, the line of the call. Both on ranks
# that are threads, and on one device while something else is lowered for.

WORLDS = [(4, None), (1, None), (1, "tpu:v5e:2x2"), (1, "gpu:h100x4")]


def no_send(x, channel):
    xm.recv(x, channel)


def another_tag(x, channel):
    xm.send(x, Channel(channel.pairs, tag=78))
    xm.recv(x, channel)


def received_twice(x, channel):
    xm.send(x, channel)
    xm.recv(x, channel)
    xm.recv(x, channel)


def another_shape(x, channel):
    xm.send(x, channel)
    xm.recv((3,), channel)


def another_dtype(x, channel):
    xm.send(x, channel)
    xm.recv((2,), channel, torch.int32)


def not_received(x, channel):
    xm.send(x, channel)
    torch_xla.sync()


def only_the_first_received(x, channel):
    xm.send(x, channel)
    xm.send(x + 1, channel)
    xm.recv(x, channel)
    torch_xla.sync()


def go_on(rank):
    """A step after all that, on which nothing is left to show."""
    sent = value_of(rank, 2)
    xm.send(sent, Channel([(0, 0)], tag=77))
    received = xm.recv((2,), Channel([(0, 0)], tag=77))
    torch_xla.sync()
    torch_xla.sync()
    return received.tolist()


def use_wrongly(rank, use, target):
    x = value_of(rank, 2)
    with contextlib.ExitStack() as stack:
        if target is not None:
            stack.enter_context(lowering_for(target))
        message = message_of(use, x, Channel([(0, 0)], tag=77))
    left = message_of(torch_xla.sync)
    return message, left, go_on(rank)


def told(use, world, target):
    """The message of a wrong use, and of the end of its step; the same on every rank."""
    messages = set()
    for rank, (message, left, after) in enumerate(worlds.run(world, use_wrongly, use, target)):
        assert after == ([0, 1] if rank == 0 else [0, 0])
        messages.add(tuple(text.replace(f"rank {rank}", "rank") for text in (*message, left[1])))
    [(kind, text, left)] = messages
    return kind, text, left


@pytest.mark.parametrize(("world", "target"), WORLDS)
@pytest.mark.parametrize(("use", "at"), [(no_send, 1), (another_tag, 2), (received_twice, 3)])
def test_recv_without_send(use, at, world, target):
    kind, message, left = told(use, world, target)
    assert kind == "RuntimeError"
    assert "Channel(pairs=((0, 0),), tag=77) has no send before it" in message
    assert line(use, at) in message
    if use is another_tag:
        assert "tag=78" in left and line(use, 1) in left
    else:
        assert left == ""


@pytest.mark.parametrize(("world", "target"), WORLDS)
@pytest.mark.parametrize(
    ("use", "wanted"),
    [(another_shape, ["[2]", "[3]"]), (another_dtype, ["torch.float32", "torch.int32"])],
)
def test_recv_of_something_else_than_what_was_sent(use, wanted, world, target):
    kind, message, left = told(use, world, target)
    assert kind == "ValueError" and left == ""
    for word in ["recv: ", "tag=77", *wanted, line(use, 1), line(use, 2)]:
        assert word in message


@pytest.mark.parametrize(("world", "target"), WORLDS[:2])
@pytest.mark.parametrize(("use", "at"), [(not_received, 1), (only_the_first_received, 2)])
def test_send_that_is_not_received_in_its_step(use, at, world, target):
    kind, message, left = told(use, world, target)
    assert kind == "RuntimeError" and left == ""
    for word in ["send: Channel(pairs=((0, 0),), tag=77)", "torch.float32 of shape [2]"]:
        assert word in message
    assert line(use, at) in message and message.count(__file__) == 1


def send_and_lower(rank, target):
    """A send that was only traced for another device, and a step here."""
    with lowering_for(target):
        xm.send(value_of(rank, 2), Channel([(0, 1)], tag=79))
    return message_of(torch_xla.sync), go_on(rank)


def test_send_that_was_lowered_for_another_device_and_is_not_received():
    # A GPU's send is an instruction, which the step here would run, and cannot.
    [((kind, message), after)] = worlds.run(1, send_and_lower, "tpu:v5e:2x2")
    assert kind == "RuntimeError" and after == [0, 1]
    assert "tag=79" in message and line(send_and_lower, 3) in message


def received_for_another_device(rank):
    xm.send(value_of(rank, 2), Channel([(0, 0)]))
    with lowering_for("tpu:v5e:2x2"):
        return message_of(xm.recv, (2,), Channel([(0, 0)])), message_of(torch_xla.sync)


def test_send_and_recv_are_for_one_device():
    [((kind, message), (left, _))] = worlds.run(1, received_for_another_device)
    assert kind == left == "RuntimeError" and "has no send before it" in message


def ends_that_differ(rank):
    """Every rank is at one with itself, and not with the others."""
    channel = Channel(RING)
    x = value_of(rank, 2 + rank // 3)
    return message_of(send_recv_sync, x, channel, True), go_on(rank)


def send_recv_sync(x, channel, receive):
    xm.send(x, channel)
    if receive:
        xm.recv(x, channel)
    torch_xla.sync()


def test_ends_on_two_ranks_that_differ():
    by_rank = worlds.run(4, ends_that_differ)
    for rank, ((kind, message), after) in enumerate(by_rank):
        assert kind == "CollectiveMismatchError" and after == ([0, 1] if rank == 0 else [0, 0])
        for word in [f"channel={Channel(RING).id}", "f32[2]", "f32[3]"]:
            assert word in message
        assert message.count(line(send_recv_sync, 1)) == 2


def only_some_receive(rank):
    channel = Channel([(0, 1)])
    return message_of(send_recv_sync, value_of(rank, 2), channel, rank < 2), go_on(rank)


def test_a_channel_is_for_all_ranks():
    for rank, ((kind, message), after) in enumerate(worlds.run(4, only_some_receive)):
        assert kind == "CollectiveMismatchError" and after == ([0, 1] if rank == 0 else [0, 0])
        assert line(send_recv_sync, 3) in message and f"channel={1 << 20}" in message


def lose_the_graph(rank):
    """The ranks disagree after a send: what was sent is gone with the graph."""
    channel = Channel(RING)

    def step():
        xm.send(value_of(rank, 2), channel)
        xm.all_gather(value_of(rank, 2 + rank % 2))
        torch_xla.sync()

    lost = message_of(step)[0]
    return lost, message_of(xm.recv, (2,), channel)[1], message_of(torch_xla.sync), go_on(rank)


def test_what_was_sent_in_a_graph_that_is_thrown_away():
    for rank, (lost, received, left, after) in enumerate(worlds.run(4, lose_the_graph)):
        assert lost == "CollectiveMismatchError" and "has no send before it" in received
        assert left == ("nothing", "") and after == ([0, 1] if rank == 0 else [0, 0])


def read_between(rank):
    """Reading a tensor is a step for the graph, but not the end of the step."""
    xm.send(value_of(rank, 2), Channel(RING))
    total = xm.all_reduce(xm.REDUCE_SUM, value_of(rank, 1)).item()
    received = xm.recv((2,), Channel(RING))
    torch_xla.sync()
    return total, received.tolist()


def test_a_read_between_send_and_recv():
    for rank, result in enumerate(worlds.run(4, read_between)):
        before = 10.0 * ((rank - 1) % 4)
        assert result == (60.0, [before, before + 1])


def leave_something(rank, bare):
    if bare and rank == 0:
        xm.send(value_of(rank, 2), 9)
    if not bare:
        xm.send(value_of(rank, 2), Channel([(0, 1)], tag=5))


def find_something(rank):
    found = []
    for channel in (Channel([(0, 1)], tag=5), 9) if rank == 1 else ():
        found.append(message_of(xm.recv, (2,), channel))
    return found


@pytest.mark.parametrize("bare", [False, True])
def test_what_is_left_at_the_end_of_launch(bare):
    with pytest.raises(RuntimeError, match=r"^send: ") as raised:
        worlds.run(4, leave_something, bare)
    message = str(raised.value)
    assert line(leave_something, 2 if bare else 4) in message
    assert ("channel 9, torch.float32 of shape [2]" if bare else "tag=5") in message
    # And the next launch starts with empty channels.
    none, [in_graph, in_mailbox], *others = worlds.run(4, find_something, launch_timeout_s=2)
    assert none == [] and others == [[], []]
    assert in_graph[0] == "RuntimeError" and in_mailbox[0] == "RanksDisagree"


def test_channels_are_values():
    assert Channel([[0, 1]], 2) == torch_xla_cc.Channel(((0, 1),), tag=2)
    assert len({Channel(RING), Channel(RING), Channel(RING, 1), Channel(RING[:1])}) == 3
    assert Channel(RING).id != Channel(RING, 1).id
    assert Channel(RING, 2**20 - 1).id < 2**31
    with pytest.raises(AttributeError):
        Channel(RING).tag = 3
