"""send and recv.

A Channel names who sends to whom, so every rank can run the same program: the two calls together
are one collective_permute (or native send and recv where the device has them), in the graph. A bare
id does not say who takes part. Between ranks that are threads it is a mailbox off the graph: the
sender puts the data in, the receiver takes it out.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Sequence

import torch

from torch_xla_cc import _C, _door
from torch_xla_cc._operators import compiling, operator
from torch_xla_cc._show import show

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


# What each rank has sent on each channel and not received: a rank that sends also receives.
_sent: dict[tuple[int, int, tuple[tuple[int, int], ...]], list[torch.Tensor]] = {}


def _key(tensor: torch.Tensor, channel: Channel) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    # Tensors that torch.compile traces do not all know their device, and it traces one thread at a
    # time.
    return (-1 if compiling() else tensor.device.index, channel.id, channel.pairs)


def _call(name: str, value: torch.Tensor, channel: Channel) -> torch.Tensor:
    if compiling():
        return operator(name, value, channel.id, [list(pair) for pair in channel.pairs])  # type: ignore[no-any-return]
    return getattr(_C, name)(value, channel.id, channel.pairs)  # type: ignore[no-any-return]


def _send_in_graph(value: torch.Tensor, channel: Channel) -> torch.Tensor:
    result: torch.Tensor = _call("send", value, channel)
    _sent.setdefault(_key(value, channel), []).append(result)
    return result


def _recv_in_graph(like: torch.Tensor, channel: Channel) -> torch.Tensor:
    sent = _sent.get(_key(like, channel))
    if not sent:
        raise RuntimeError(
            f"recv: {channel} has no send before it on this rank. Every rank calls send and then "
            "recv on a channel, also one that is neither source nor target: its operand gives the "
            "shape"
        )
    value = sent.pop(0)
    if not sent:
        del _sent[_key(like, channel)]
    if value.shape != like.shape or value.dtype != like.dtype:
        raise ValueError(
            f"recv: {channel} was sent {value.dtype} of shape {list(value.shape)}, but "
            f"{like.dtype} of shape {list(like.shape)} is to be received. Send and receive the "
            "same shape and dtype"
        )
    return _call("recv", value, channel)


def forget() -> None:
    """Drop what was sent and never received; a new launch starts with empty channels."""
    _sent.clear()
    mailboxes.clear()


class _Mailboxes:
    """Tensors on the host, by bare channel id, between the threads of this process."""

    def __init__(self) -> None:
        self.timeout_s = 0.0  # set by launch
        self._changed = threading.Condition()
        self._boxes: dict[int, deque[torch.Tensor]] = {}

    def put(self, channel: int, value: torch.Tensor) -> None:
        with self._changed:
            self._boxes.setdefault(channel, deque()).append(value)
            self._changed.notify_all()

    def take(self, channel: int) -> torch.Tensor | None:
        rank = _door.default_rank()
        end = time.monotonic() + self.timeout_s
        while time.monotonic() < end:
            with self._changed:
                box = self._boxes.get(channel)
                if box:
                    return box.popleft()
                self._changed.wait(0.1)
            _C.ranks_check(rank)  # a rank that failed will not send any more
        return None

    def clear(self) -> None:
        with self._changed:
            self._boxes.clear()


mailboxes = _Mailboxes()


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
    if not (target.startswith("cpu") and world_size > 1) or _C.thread_target() is not None:
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
    mailboxes.put(bare, value.detach().cpu())
    return value


def recv(like: torch.Tensor, channel: int | Channel) -> torch.Tensor:
    """See xla_model.recv."""
    if not isinstance(like, torch.Tensor) or like.device.type != "xla":
        raise TypeError(f"recv: output = {show(like)}, but it must be a tensor on an XLA device")
    if isinstance(channel, Channel):
        return _recv_in_graph(like, channel)
    bare = _check_bare("recv", channel)
    # A peer's send may wait for a collective that is pending here.
    _door.run_pending(_door.default_rank())
    value = mailboxes.take(bare)
    if value is None:
        raise _C.RanksDisagree(
            f"recv: nothing was sent on channel {bare} in {mailboxes.timeout_s:g} s"
        )
    if value.shape != like.shape or value.dtype != like.dtype:
        raise ValueError(
            f"recv: channel {bare} was sent {value.dtype} of shape {list(value.shape)}, but "
            f"{like.dtype} of shape {list(like.shape)} is to be received. Send and receive the "
            "same shape and dtype"
        )
    return value.to(like.device)
