"""send and recv.

A Channel names who sends to whom, so every rank can run the same program: the two calls together
are one collective_permute (or native send and recv where the device has them), in the graph. A bare
id does not say who takes part. Between ranks that are threads it is a mailbox off the graph: the
sender puts the data in, the receiver takes it out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch_xla.core import xla_model as stock

from torch_xla_cc import _C
from torch_xla_cc._ops.operators import compiling, operator
from torch_xla_cc._ops.targets import ranks_are_threads
from torch_xla_cc._runtime.call_site import call_site
from torch_xla_cc._runtime.show import show
from torch_xla_cc._threads import launch, read_hooks
from torch_xla_cc._threads.mailboxes import Sent, mailboxes

# Channels of pairs get ids from here on, bare ids are below: the two never meet.
_FIRST_TAG = 1 << 20


@dataclasses.dataclass(frozen=True)
class Channel:
    """A way between ranks that every rank knows.

    Args:
      pairs: (source, target) ranks; each rank at most once as source and once as target.
      tag: tells channels of equal pairs apart, 0 to 2**20 - 1.
    """

    pairs: tuple[tuple[int, int], ...]
    tag: int = 0

    def __init__(self, pairs: Sequence[Sequence[int]], tag: int = 0) -> None:
        if not isinstance(tag, int) or isinstance(tag, bool) or not 0 <= tag < _FIRST_TAG:
            raise ValueError(f"Channel: tag = {show(tag)}, but it must be an int of 0 to 2**20 - 1")
        if not isinstance(pairs, (list, tuple)) or not all(
            isinstance(pair, (list, tuple)) and all(isinstance(rank, int) for rank in pair)
            for pair in pairs
        ):
            raise TypeError("Channel: pairs must be a list of (source, target) pairs of ranks")
        object.__setattr__(self, "pairs", tuple(tuple(pair) for pair in pairs))
        object.__setattr__(self, "tag", tag)

    @property
    def id(self) -> int:
        """The channel id in HLO."""
        return _FIRST_TAG + self.tag


# Pairs of a channel, its id, and the target that it is lowered for if that is not the device here.
_Key = tuple[tuple[tuple[int, int], ...], int, tuple[str, int] | None]

# By rank: what it has sent and not received, since a rank that sends also receives; and how many
# graphs the rank had lost by then.
_sent: dict[int, tuple[int, dict[_Key, list[Sent]]]] = {}
# Ranks that look at the end of their step whether all was received.
_watching: set[int] = set()
# What torch.compile has traced. Its tensors do not all know their device, nor where they are from,
# and it traces one thread at a time.
_traced: dict[_Key, list[torch.Tensor]] = {}


def _key(channel: Channel) -> _Key:
    return channel.pairs, channel.id, None if compiling() else _C.thread_target()


def _call(name: str, value: torch.Tensor, channel: Channel) -> torch.Tensor:
    if compiling():
        return operator(name, value, channel.id, [list(pair) for pair in channel.pairs])  # type: ignore[no-any-return]
    return getattr(_C, name)(value, channel.id, channel.pairs)  # type: ignore[no-any-return]


def _sent_by(rank: int) -> dict[_Key, list[Sent]]:
    losses, sent = _C.ranks_losses(rank), _sent.get(rank)
    if sent is None or sent[0] != losses:
        sent = _sent[rank] = losses, {}
    return sent[1]


def _send_in_graph(value: torch.Tensor, channel: Channel) -> torch.Tensor:
    result: torch.Tensor = _call("send", value, channel)
    if compiling():
        _traced.setdefault(_key(channel), []).append(result)
        return result
    rank = value.device.index
    _sent_by(rank).setdefault(_key(channel), []).append(Sent(result, rank, call_site()))
    if rank not in _watching:
        _watching.add(rank)
        stock.add_step_closure(_end_step, args=(rank,))
    return result


def _end_step(rank: int) -> None:
    """Raise if this rank has sent what it did not receive; it starts the next step without that."""
    _watching.discard(rank)
    left = [
        f"{Channel(pairs, number - _FIRST_TAG)} was sent {sent}"
        for (pairs, number, _), all_sent in _sent_by(rank).items()
        for sent in all_sent
    ]
    _sent.pop(rank)
    if left:
        raise RuntimeError(
            f"send: {'; '.join(left)}, and rank {rank} has ended its step without recv on it. "
            "Every rank calls send and then recv on a channel, also one that is neither source nor "
            "target, before torch_xla.sync()"
        )


def _take(like: torch.Tensor, channel: Channel) -> torch.Tensor | Sent:
    """What was sent first on the channel, and where if that is known."""
    all_sent = _traced if compiling() else _sent_by(like.device.index)
    key = _key(channel)
    if key not in all_sent:
        where = "" if compiling() else f" for the call at {call_site()}"
        raise RuntimeError(
            f"recv: {channel} has no send before it on this rank{where}. Every rank calls send and "
            "then recv on a channel, also one that is neither source nor target: its operand gives "
            "the shape"
        )
    sent: torch.Tensor | Sent = all_sent[key].pop(0)
    if not all_sent[key]:
        del all_sent[key]
    return sent


def _recv_in_graph(like: torch.Tensor, channel: Channel) -> torch.Tensor:
    sent = _take(like, channel)
    value = sent.value if isinstance(sent, Sent) else sent
    _check_alike(channel, value, sent.site if isinstance(sent, Sent) else "", like)
    return _call("recv", value, channel)


def _check_alike(
    channel: Channel | str, value: torch.Tensor, site: str, like: torch.Tensor
) -> None:
    """Raise if something else was sent, at that site, than is to be received."""
    if value.shape != like.shape or value.dtype != like.dtype:
        there, here = (f" at {site}", f" at {call_site()}") if site else ("", "")
        raise ValueError(
            f"recv: {channel} was sent {value.dtype} of shape {list(value.shape)}{there}, but "
            f"{like.dtype} of shape {list(like.shape)} is to be received{here}. Send and receive "
            "the same shape and dtype"
        )


def _forget() -> None:
    """Drop what was sent and never received; a new launch starts with empty channels."""
    _sent.clear()
    _watching.clear()
    _traced.clear()


launch.at_end(_forget)


def _check_bare(op: str, channel: object) -> int:
    if isinstance(channel, bool) or not isinstance(channel, int):
        raise TypeError(
            f"{op}: channel_id = {show(channel)}, but it must be an int or a torch_xla_cc.Channel"
        )
    if not 1 <= channel < _FIRST_TAG:
        raise ValueError(
            f"{op}: channel_id = {channel}, but it must be 1 to 2**20 - 1. Number channels from 1"
        )
    target, world_size = _C.current_target()
    if not ranks_are_threads() or _C.thread_target() is not None:
        raise ValueError(
            f"{op}: channel_id = {channel} does not say which ranks take part, and on {target} "
            f"with {world_size} rank(s) all of them run one program. Name them: "
            "torch_xla_cc.Channel(pairs=[(source, target)])"
        )
    return channel


def place(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of that shape and type on this thread's device, for recv."""
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"recv: dtype = {show(dtype)}, but it must be a torch.dtype")
    try:
        return torch.empty(tuple(shape), dtype=dtype, device="xla")
    except Exception as error:
        why = str(error).partition("\n")[0]
        raise ValueError(
            f"recv: output = {show(shape)} and dtype = {show(dtype)}, but they must be a tensor, "
            f"or the shape and the dtype of one: {why}"
        ) from error


def send(value: torch.Tensor, channel: int | Channel) -> torch.Tensor:
    """See xla_model.send."""
    if not isinstance(value, torch.Tensor) or value.device.type != "xla":
        raise TypeError(f"send: value = {show(value)}, but it must be a tensor on an XLA device")
    if isinstance(channel, Channel):
        return _send_in_graph(value, channel)
    bare = _check_bare("send", channel)
    _C.through_host("send", bare, value)
    mailboxes.put(bare, Sent(value.detach().cpu(), value.device.index, call_site()))
    return value


def recv(like: torch.Tensor, channel: int | Channel) -> torch.Tensor:
    """See xla_model.recv."""
    if not isinstance(like, torch.Tensor) or like.device.type != "xla":
        raise TypeError(f"recv: output = {show(like)}, but it must be a tensor on an XLA device")
    if isinstance(channel, Channel):
        return _recv_in_graph(like, channel)
    bare = _check_bare("recv", channel)
    _C.through_host("recv", bare, like)
    # A peer's send may wait for a collective that is pending here.
    read_hooks.run_pending(read_hooks.default_rank())
    sent = mailboxes.take(bare, call_site())
    _check_alike(f"channel {bare}", sent.value, sent.site, like)
    return sent.value.to(like.device)


def through(value: torch.Tensor, channel: Channel) -> torch.Tensor:
    """What a send and the recv after it give."""
    if compiling():  # in a gradient it takes no notes of what was sent
        return _call("recv", _call("send", value, channel), channel)
    return _recv_in_graph(_send_in_graph(value, channel), channel)
