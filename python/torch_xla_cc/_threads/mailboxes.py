"""Tensors on the host, by bare channel id, between the ranks that are threads of this process."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque

import torch

from torch_xla_cc import _C
from torch_xla_cc._threads import read_hooks


@dataclasses.dataclass(frozen=True)
class Sent:
    """What a rank has put into a channel, and where in its program."""

    value: torch.Tensor
    rank: int
    site: str

    def __str__(self) -> str:
        return f"{self.value.dtype} of shape {list(self.value.shape)} at {self.site}"


class Mailboxes:
    """One first-in-first-out box a channel."""

    def __init__(self) -> None:
        self.timeout_s = 0.0  # set by launch
        self._changed = threading.Condition()
        self._boxes: dict[int, deque[Sent]] = {}

    def put(self, channel: int, sent: Sent) -> None:
        with self._changed:
            self._boxes.setdefault(channel, deque()).append(sent)
            self._changed.notify_all()

    def take(self, channel: int, site: str) -> Sent:
        """What was sent first. Waits for it; raises RanksDisagree if it does not come."""
        rank = read_hooks.default_rank()
        end = time.monotonic() + self.timeout_s
        while time.monotonic() < end:
            with self._changed:
                box = self._boxes.get(channel)
                if box:
                    return box.popleft()
                self._changed.wait(0.1)
            _C.ranks_check(rank)  # a rank that failed will not send any more
        others = "; ".join(self._left()) or "nothing"
        raise _C.RanksDisagree(
            f"recv: nothing was sent on channel {channel} in {self.timeout_s:g} s, the time limit "
            f"of launch, for rank {rank} at {site}. Sent and not received: {others}"
        )

    def _left(self) -> list[str]:
        with self._changed:
            return [
                f"channel {channel}, {sent}, by rank {sent.rank}"
                for channel, box in self._boxes.items()
                for sent in box
            ]

    def check_empty(self) -> None:
        """Raise if something was sent and never received; the boxes are empty then."""
        left = self._left()
        self.clear()
        if left:
            raise RuntimeError(
                f"send: not received when all ranks had returned: {'; '.join(left)}. Call recv "
                "with the same channel on the rank that it is for"
            )

    def clear(self) -> None:
        with self._changed:
            self._boxes.clear()


mailboxes = Mailboxes()
