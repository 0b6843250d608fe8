"""What Megatron-core's distributed optimizer steps, in a form that is alike on all ranks.

It cuts a buffer into equal parts without regard to where parameters begin, so each rank's optimizer
has pieces of other parameters, of other sizes: a program of each rank's own. Here it steps the
whole part as one flat tensor. The pieces are there again when they are asked for.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist

from torch_xla_cc._runtime import device_tensors
from torch_xla_cc.adapters import _megatron_buffers, _megatron_clip, _storage

# How an element counts in the norm of gradients, in the two low bits of its kind. The others are
# the number of its group of parameters.
NEVER, ON_THE_FIRST, ALWAYS = range(3)  # of the tensor parallel ranks
A_GROUP = 4
_State = dict[str, torch.Tensor]


def run_all(tensors: Iterable[torch.Tensor]) -> None:
    """Run what is pending on their devices, if these are XLA's.

    Around what a rank does to its pieces, so that it is in no program of all. Views that are made
    on the way, and stay alive with the last one, are computed here as well.
    """
    for index in {x.device.index for x in tensors if x.device.type == "xla"}:
        device_tensors.run_live(index)


class Piece(NamedTuple):
    """Of one parameter, in a rank's part: as Megatron-core has it."""

    main: torch.Tensor  # what it has its optimizer step
    start: int
    stop: int
    kind: int


class Part:
    """A rank's part of one bucket, as one tensor for the optimizer, whose gradient it has too."""

    def __init__(self, bucket: Any, group: dist.ProcessGroup) -> None:  # noqa: ANN401
        self._data: torch.Tensor = bucket.param_data  # of all ranks
        self._gradients: torch.Tensor = bucket.grad_data
        self._group = group
        # Else pieces are views of the parameters, and the optimizer steps these.
        self.is_copy = self._data.dtype != torch.float32
        size = self._data.numel() // group.size()
        self.flat = torch.zeros(size, device=self._data.device)
        self.groups: list[int] = []  # of parameters, of which any rank has a piece
        self.pieces: list[Piece] = []
        self._kinds = torch.zeros(0)

    def fill(self, groups: Sequence[int], pieces: Sequence[Piece]) -> None:
        """These are in it."""
        self.groups, self.pieces = sorted(set(groups)), list(pieces)
        kinds = torch.zeros(self.flat.numel(), dtype=torch.uint8)
        for piece in pieces:
            kinds[piece.start : piece.stop] = piece.kind
        self._kinds = kinds.to(self.flat.device)
        setattr(self.flat, _megatron_clip.COUNTS, self.counts)

    def joined(self, pieces: Sequence[torch.Tensor]) -> torch.Tensor:
        """A tensor of the part's size, of what its pieces have; zeros are between them."""
        x = torch.zeros_like(self.flat, dtype=pieces[0].dtype if pieces else None)
        for piece, value in zip(self.pieces, pieces, strict=True):
            x[piece.start : piece.stop] = value.detach()
        return x

    def is_of_elements(self, x: Any) -> bool:  # noqa: ANN401 (any state of an optimizer)
        """Whether it has a number for each element of the part."""
        return isinstance(x, torch.Tensor) and x.shape == self.flat.shape

    def begin_step(self) -> None:
        """Parameters and gradients are those of the buffers."""
        if not self.is_copy:  # somebody may have written to them
            self.flat.copy_(self._taken(self._data))
        self.flat.grad = self._taken(self._gradients).float()

    def end_step(self) -> None:
        """Have the rank's part of the parameters be what the optimizer has made of it."""
        self.flat.grad = None
        part = self.flat.to(self._data.dtype)
        _megatron_buffers.put(self._data, part, self._group)

    def counts(self, is_first: torch.Tensor | bool) -> torch.Tensor:
        """Which elements count on this tensor parallel rank, or the first one, as a mask."""
        how = self._kinds & (A_GROUP - 1)
        return (how == ALWAYS) | ((how == ON_THE_FIRST) & is_first)

    def merged(self, of_groups: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """Each element as the step of its own group has it."""
        first, *others = self.groups
        x = of_groups[first]
        for group in others:
            x = torch.where(self._kinds >= A_GROUP * group, of_groups[group], x)
        return x

    def _taken(self, buffer: torch.Tensor) -> torch.Tensor:
        part = _megatron_buffers.take(buffer, self._group)
        assert part is not None
        return part


class Parts:
    """Those of an optimizer. Its parameters are these, or Megatron-core's pieces.

    A part with parameters of several groups is stepped once for each group, with the group's
    settings, and each element is taken from its own: the compiler makes one loop of that.
    """

    def __init__(self, inner: torch.optim.Optimizer, parts: Sequence[Part]) -> None:
        self._inner = inner  # of torch
        self.parts = list(parts)
        self._of_groups = [list(group["params"]) for group in inner.param_groups]  # pieces
        self._stepped: list[dict[int, torch.Tensor]] = []  # of each part, by group
        self.is_flat = False
        self._is_used = False
        run_all(part.flat for part in self.parts)

    def flatten(self) -> None:
        """Have the optimizer's parameters be the parts, and its state of their size."""
        if self.is_flat:
            return
        pieces = cast("Mapping[torch.Tensor, _State]", self._inner.state)
        sample = next((state for state in pieces.values() if state), {})
        states: defaultdict[torch.Tensor, _State] = defaultdict(dict)
        for part in self.parts:
            mains = [piece.main for piece in part.pieces]
            zeros = torch.zeros((), device=part.flat.device)
            if part.is_copy:
                part.flat.copy_(part.joined(mains))
            for name, x in sample.items():
                if x.dim():
                    values = [pieces[main].get(name, zeros) for main in mains]
                    states[part.flat][name] = part.joined(values)
                else:
                    states[part.flat][name] = x.clone()
        device_tensors.run([*self._tensors(states)])
        for part in self.parts:
            for piece in part.pieces:
                if part.is_copy:
                    _storage.free(piece.main)
        self._inner.state = states
        self._set([{part.groups[0]: part.flat} for part in self.parts])
        self.is_flat = True

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """For what uses Megatron-core's pieces: they are the optimizer's until the next step."""
        if self._is_used:  # by what has called this
            yield
            return
        flats = [part.flat for part in self.parts]
        run_all(flats)
        if self.is_flat:
            self._cut()
        self._is_used = True
        try:
            yield
        finally:
            self._is_used = False
            run_all(flats)

    def _cut(self) -> None:
        flats = cast("Mapping[torch.Tensor, _State]", self._inner.state)
        states: defaultdict[torch.Tensor, _State] = defaultdict(dict)
        for part in self.parts:
            for piece in part.pieces:
                place = slice(piece.start, piece.stop)
                if part.is_copy:
                    device_tensors.become(piece.main, part.flat[place].clone())
                for name, x in flats.get(part.flat, {}).items():
                    x = x[place] if part.is_of_elements(x) else x
                    states[piece.main][name] = x.clone()
        self._inner.state = states
        for group, pieces in zip(self._inner.param_groups, self._of_groups, strict=True):
            group["params"] = list(pieces)
        self.is_flat = False

    def counted(self, tp_group: dist.ProcessGroup | None) -> list[torch.Tensor]:
        """Gradients of the parts, with zeros for what other tensor parallel ranks count."""
        found = []
        for part in self.parts:
            gradient = cast("torch.Tensor", part.flat.grad)
            mask = part.counts(_megatron_clip.is_first(tp_group, gradient))
            found.append(torch.where(mask, gradient, gradient.new_zeros(())))
        return found

    def begin_step(self) -> None:
        """Parameters and gradients are those of the buffers."""
        self.flatten()
        for part in self.parts:
            part.begin_step()

    def spread(self) -> None:
        """Give each group of parameters a copy of the parts that it has pieces of."""
        states = self._inner.state
        self._stepped = []
        for part in self.parts:
            of_groups = {part.groups[0]: part.flat}
            for group in part.groups[1:]:
                copied = part.flat.clone()
                copied.grad = part.flat.grad
                if state := states.get(part.flat):
                    states[copied] = {name: x.clone() for name, x in state.items()}
                of_groups[group] = copied
            self._stepped.append(of_groups)
        self._set(self._stepped)

    def end_step(self) -> None:
        """Have parts and buffers be what the optimizer has made of them."""
        states = self._inner.state
        for part, of_groups in zip(self.parts, self._stepped, strict=True):
            each = {group: states.get(x, {}) for group, x in of_groups.items()}
            own = states[part.flat]
            for name, x in own.items():
                if part.is_of_elements(x):
                    own[name] = part.merged({group: state[name] for group, state in each.items()})
            part.flat.copy_(part.merged(of_groups))
            for group in part.groups[1:]:
                states.pop(of_groups[group], None)
            part.end_step()
        self._stepped = []
        self._set([{part.groups[0]: part.flat} for part in self.parts])

    def _set(self, of_parts: Sequence[Mapping[int, torch.Tensor]]) -> None:
        for number, group in enumerate(self._inner.param_groups):
            group["params"] = [x[number] for x in of_parts if number in x]

    def _tensors(self, states: Mapping[torch.Tensor, _State]) -> Iterator[torch.Tensor]:
        """On the device: the parts and their state."""
        flats = [part.flat for part in self.parts]
        of_states = [x for state in states.values() for x in state.values()]
        yield from (x for x in [*flats, *of_states] if x.device.type == "xla")
