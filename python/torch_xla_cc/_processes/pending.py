"""What a rank has pending: its calls, as noted, and the tensors of its graph."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterable

import torch

from torch_xla_cc import _C
from torch_xla_cc._processes import evaluate, living_tensors
from torch_xla_cc._processes.evaluate import Chosen
from torch_xla_cc._processes.said import number_of
from torch_xla_cc._runtime import chains
from torch_xla_cc._runtime.device_tensors import needs_run
from torch_xla_cc._runtime.private import XLAC

_calls = _C.noted_calls
_Runs = Callable[[int, list[torch.Tensor]], list[torch.Tensor]]
_KEPT = 4096  # graphs
_OURS = " xla_cc::"  # in the names of what our calls make in a graph


class StockCollective(RuntimeError):
    """What is read needs a collective that is not of this package, or is in a loop."""


class Living:
    """The tensors of a device that Python knows, but for those that noted calls hold."""

    def __init__(self, rank: int, programs: dict[tuple[object, ...], bytes] | None = None) -> None:
        """`programs`: those that are known of such tensors, while this rank's graph stays."""
        self._programs = {} if programs is None else programs
        held = {XLAC._xla_get_tensor_id(x) for x in _calls.tensors()}
        found: dict[int, list[torch.Tensor]] = {}  # several may be one for torch_xla
        for one in living_tensors.all_of_them():
            try:
                if torch.Tensor.device.__get__(one).index == rank:
                    found.setdefault(XLAC._xla_get_tensor_id(one), []).append(one)
            except (RuntimeError, TypeError):
                continue  # FakeTensors, and what others build of tensors
        for number in held:
            found.pop(number, None)
        self._rank = rank
        self._not_left = held | found.keys()
        known = [found[number] for number in sorted(found)]  # in the order they were made
        needed = XLAC._check_tensor_need_materialization([x[0] for x in known]) if known else []
        self._pending = [x for x, needs in zip(known, needed, strict=True) if needs]
        made = XLAC._xla_counter_value("CreateXlaTensor") or 0
        gone = XLAC._xla_counter_value("DestroyXlaTensor") or 0
        # What autograd has saved, and bases of views.
        self.others = made - gone - len(known) - len(held)

    @functools.cached_property
    def hashed(self) -> bytes:
        """All of it, as torch_xla has it."""
        return evaluate.hashed(self.pending)

    @functools.cached_property
    def _program(self) -> bytes:
        asked = self.hashed, *map(XLAC._xla_get_tensor_id, self.pending)
        if asked not in self._programs:
            self._programs[asked] = evaluate.program_of(self.hashed, self.pending)
        return self._programs[asked]

    @property
    def graph(self) -> int:
        """What runs for all of it, as a number."""
        return number_of(self._program)

    def runs(self) -> None:
        """It does, with all ranks: for such a graph torch_xla will not make another program."""
        evaluate.will_run(self.hashed, self._program)

    @property
    def pending(self) -> list[torch.Tensor]:
        """Those that are still to be computed."""
        return [x[0] for x in self._pending]

    def left(self) -> list[str]:
        """The graphs of tensors that nobody here knows, if there are calls in them.

        To be asked for once what is pending has become what it is: what torch_xla has of a view
        that was made by as_strided holds what that was a view of, also when that is written to.
        """
        if self.others <= 0:
            return []
        # Of each tensor with more than its data in its graph: its number, and its graph as a text.
        report = XLAC._xla_tensors_report(2, f"xla:{self._rank}")
        graphs = []
        for one in report.split("Tensor: id=")[1:]:
            number, _, graph = one.partition(",")
            if int(number) not in self._not_left:
                graphs.append(graph.partition("IR {")[2])
        return graphs if any(_OURS in graph for graph in graphs) else []

    def become(self, values: list[torch.Tensor]) -> None:
        """Have those be these."""
        for same, value in zip(self._pending, values, strict=True):
            for x in same:
                XLAC._replace_xla_tensor(x, value)


def living_now(rank: int, known: Known, seen: set[bytes], *, looks: bool) -> Living:
    """Those of a rank, without garbage that is pending as well, when Python collects it.

    That is looked for where the graph is none that was `seen`, if `looks`.
    """
    living = Living(rank, known.programs)
    if not looks or living.hashed in seen:
        return living
    del living  # which holds all of it
    gc.collect()
    living = Living(rank, known.programs)
    if len(seen) >= _KEPT:
        seen.clear()
    seen.add(living.hashed)
    return living


class Known:
    """The results of noted calls, and what is known of them."""

    def __init__(self) -> None:
        self._values: dict[int, list[torch.Tensor]] = {}  # by call
        self._settled = 0  # calls, the first ones, which nothing needs any more
        # While this rank waits, as its graph stays as it is.
        self._needs: dict[object, set[int]] = {}
        self.programs: dict[tuple[object, ...], bytes] = {}

    def forget(self) -> None:
        """All calls have run in the graph, or are lost."""
        self._values.clear()
        self._settled = 0
        self.look_again()
        _calls.forget()

    def needed(self, roots: list[torch.Tensor]) -> set[int]:
        """The calls that have to run before these can be computed on this rank alone."""
        roots = [x for x in roots if needs_run(x)]
        if not roots or not _calls.count():
            return set()
        # Who waits asks the same again, each time that another has read.
        ids = tuple(XLAC._xla_get_tensor_id(x) for x in roots)
        asked = ids, evaluate.hashed(roots), _calls.count()
        if asked not in self._needs:
            results, places = self._results(range(self._settled, _calls.count()))
            chosen = evaluate.program(roots, results)
            self._needs[asked] = {places[one][0] for one in chosen.used}
        return self._needs[asked] - self._values.keys()

    def look_again(self) -> None:
        """The graph may have changed."""
        self._needs.clear()
        self.programs.clear()

    def any(self) -> bool:
        """Whether there are any."""
        return bool(self._values)

    def settle(self, made: int) -> None:
        """The first calls are known, and what was pending has become what it is."""
        self._settled = made
        self._values = {call: [] if call < made else x for call, x in self._values.items()}
        _calls.settle(made)

    def unknown(self, end: int) -> list[int]:
        """The first `end` calls without those that are known."""
        return [call for call in range(end) if call not in self._values]

    def evaluate(self, roots: list[torch.Tensor], end: int | None = None) -> list[torch.Tensor]:
        """What these are, on this rank alone: all that they need is known.

        Of the first `end` calls, if it is given.
        """
        pending = [x for x in roots if needs_run(x)]
        if not pending:
            return roots
        results, places = self._results(range(self._settled, end or _calls.count()))
        chosen = evaluate.program(pending, results)
        if chosen.program.has_collective:
            raise StockCollective(
                "a tensor is read by one rank, or the ranks' programs differ, and it needs a "
                "collective of torch_xla's own, or one in a loop, which all ranks have to run in "
                "one program. Call torch_xla_cc.install() before, or read it on all ranks after "
                "torch_xla.sync()"
            )
        found = iter(evaluate.run(chosen, pending, results, self._taken(chosen, places)))
        return [next(found) if needs_run(x) else x for x in roots]

    def _taken(self, chosen: Chosen, places: list[tuple[int, int]]) -> list[torch.Tensor]:
        """The values that a program takes."""
        return [self._values[call][i] for call, i in (places[one] for one in chosen.used)]

    def _results(self, calls: Iterable[int]) -> tuple[list[torch.Tensor], list[tuple[int, int]]]:
        """Their results; and of each, which call it is of, and the how manyth of that."""
        each = [(x, (call, i)) for call in calls for i, x in enumerate(_calls.results(call))]
        return [x for x, _ in each], [place for _, place in each]

    def shared(self, calls: list[int]) -> Chosen:
        """The program that runs these calls."""
        return evaluate.program(self._results(calls)[0], self._results(self._held())[0])

    def run_shared(self, calls: list[int], chosen: Chosen) -> None:
        """Run that program, which all ranks have."""
        roots, _ = self._results(calls)
        known, places = self._results(self._held())
        found = evaluate.run(chosen, roots, known, self._taken(chosen, places))
        for call in calls:
            count = len(_calls.results(call))
            self._values[call], found = found[:count], found[count:]

    def _held(self) -> list[int]:
        return [call for call in sorted(self._values) if call >= self._settled]

    def run_alone(self, call: int, rank: int, run: _Runs = _calls.again) -> None:
        """Run one call by itself, of what this rank has for it."""
        operands = self._operands(call)
        with chains.beginning(rank, chains.first(rank)):
            results = run(call, operands)
        evaluate.sync(results)
        count = len(_calls.results(call))
        tokens = [self._no_token(rank) for _ in range(count - len(results))]
        self._values[call] = [*results, *tokens]

    def _operands(self, call: int) -> list[torch.Tensor]:
        operands: list[torch.Tensor] = _calls.operands(call)
        pending = [x for x in operands if needs_run(x)]
        # Without looking through the graphs of all calls, as most need the result of none.
        if pending and not (chosen := evaluate.program(pending, [])).program.has_collective:
            found = iter(evaluate.run(chosen, pending, [], []))
            return [next(found) if needs_run(x) else x for x in operands]
        return self.evaluate(operands, call)

    def _no_token(self, rank: int) -> torch.Tensor:
        """In the place of a token: the call has run, and orders nothing any more.

        A new one: torch_xla takes programs of which inputs are one buffer for each other.
        """
        return chains.begun(rank)
