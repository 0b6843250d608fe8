"""Random programs of ranks that make and end a world of torch.distributed, as plain data.

A program is groups, events that all members of a group have a part in, and at most one fault: what
one rank does otherwise. `program(seed, world, where)` makes it; world_calls.py carries it out, and
world_oracle.py says what each rank may get. `text(program)` is how it is shown.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import Any

REDUCTIONS = ["all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"]
ROOTED = ["broadcast", "reduce", "gather", "scatter", "gather_object", "broadcast_object_list"]
ROOTED += ["scatter_object_list"]
GATHERS = ["all_gather", "all_gather_into_tensor", "all_to_all_single", "all_to_all"]
COALESCED = ["coalesced_all_reduce", "coalesced_all_gather", "coalesced_reduce_scatter"]
OBJECTS = ["all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"]
BARRIERS = ["barrier", "monitored_barrier"]
COLLECTIVES = [*REDUCTIONS, "broadcast", "gather", "scatter", *GATHERS, *COALESCED]
# Those that may be left in the graph, and those that are always left there.
FUNCTIONAL = ["functional all_reduce", "functional all_gather", "functional reduce_scatter"]
FUNCTIONAL += ["functional all_to_all", "functional broadcast"]
LAZY = ["all_reduce", "broadcast", "all_gather", "all_gather_into_tensor", "all_to_all_single"]
LAZY += ["reduce_scatter", "reduce_scatter_tensor", "batch", *FUNCTIONAL]
MESSAGES = ["messages", "batch", "objects sent"]
ANYONE = "from anyone"  # the root receives what all others send: of programs without a fault

SHAPES = [(3,)] * 6 + [(2, 3)] * 3 + [(5,), (), (0,), (1, 2)]
DTYPES = ["float32"] * 6 + ["int32"] * 2 + ["bfloat16", "int64", "uint8"]
KINDS = ["SUM"] * 4 + ["MAX", "MIN", "PRODUCT", "AVG"]
PLAIN = 0.9  # of programs have one shape, type and kind: XLA compiles nothing new for them
LONG_S, SHORT_S = 60.0, 0.5

STAYING = "staying"  # processes whose calls stay in the graph: of a fault all hear, and end
NO_FAULTS = {"none": 1}
FAULTS = {
    "none": 6,
    "differ": 12,
    "swap": 2,
    "omit": 2,
    "other group": 2,
    "late": 1,
    "too late": 1,
    "stop": 1,
    "end": 1,
}
# Of processes of which one is killed: before an event, or some milliseconds into its call.
KILLS = {"killed": 1, "killed in it": 1}


@dataclasses.dataclass(frozen=True)
class Call:
    """A collective, or messages. `root` is a rank of the group, `how` how its result is awaited."""

    op: str
    shape: tuple[int, ...] = (3,)
    dtype: str = "float32"
    kind: str = "SUM"
    root: int = 0
    how: str = "at once"  # or: wait, twice, poll, future, refused
    splits: int = 0  # what the sizes of all_to_all are made of
    tag: int = 0
    peer: int = 1  # messages go to the rank so many places further

    def is_message(self) -> bool:
        return self.op in MESSAGES


@dataclasses.dataclass(frozen=True)
class Event:
    """Calls of one group; in a lazy one, of the groups in `groups`, which are in the graph."""

    calls: tuple[Call, ...]
    groups: tuple[int, ...]  # one a call
    lazy: bool = False
    reads: tuple[int, ...] = ()  # who reads something of its own before it


@dataclasses.dataclass(frozen=True)
class Fault:
    kind: str = "none"
    rank: int = 0
    event: int = 0  # from which on
    detail: Any = None


@dataclasses.dataclass(frozen=True)
class Program:
    seed: int
    world: int
    where: str
    groups: tuple[tuple[int, ...], ...]  # the world first
    events: tuple[Event, ...]
    fault: Fault = Fault()
    short: frozenset[int] = frozenset()  # groups of a short time limit
    plain: bool = False  # operands come from the host, and nothing is pending before a call


@dataclasses.dataclass(frozen=True)
class Action:
    """What a rank does for an event: in it its own calls."""

    event: int
    calls: tuple[Call, ...]
    groups: tuple[int, ...]
    lazy: bool = False
    reads: bool = False
    before: str = ""  # of the fault: late, too late, end, stop, killed, killed in it


def text(program: Program) -> str:
    """As people read it; `program(seed, world, where)` gives it back."""
    lines = [f"program({program.seed}, {program.world}, {program.where!r}): groups"]
    for number, members in enumerate(program.groups):
        limit = SHORT_S if number in program.short else LONG_S
        lines.append(f"  {number}: ranks {list(members)}, {limit:g} s")
    for number, event in enumerate(program.events):
        who = f", read by {list(event.reads)}" if event.reads else ""
        lines.append(f"  event {number}{', in the graph' if event.lazy else ''}{who}")
        for call, group in zip(event.calls, event.groups, strict=True):
            lines.append(f"    group {group}: {call}")
    lines.append(f"  {program.fault}")
    return "\n".join(lines)


def actions_of(program: Program, rank: int) -> list[Action]:
    """What a rank does, its fault in it, in order."""
    fault = program.fault
    own = fault.rank == rank
    found = []
    for number, event in enumerate(program.events):
        part = [i for i, g in enumerate(event.groups) if rank in program.groups[g]]
        if not part:
            continue
        action = Action(
            number,
            tuple(event.calls[i] for i in part),
            tuple(event.groups[i] for i in part),
            event.lazy,
            rank in event.reads,
        )
        at_fault = own and fault.event == number
        if own and fault.kind == "end" and number >= fault.event:
            gone = fault.detail
            before = "end" if at_fault else ""
            if action.groups[0] == gone:
                if at_fault:
                    found.append(dataclasses.replace(action, calls=(), groups=(), before=before))
                continue
        if at_fault and fault.kind in ("stop", "killed"):
            found.append(dataclasses.replace(action, calls=(), groups=(), before=fault.kind))
            return found
        if at_fault and fault.kind == "omit":
            continue
        if at_fault and fault.kind == "differ":
            action = dataclasses.replace(action, calls=(fault.detail,))
        if at_fault and fault.kind == "other group":
            action = dataclasses.replace(action, groups=(fault.detail,))
        if at_fault and fault.kind in ("late", "too late", "killed in it"):
            action = dataclasses.replace(action, before=fault.kind)
        found.append(action)
    if own and fault.kind == "swap":
        places = [i for i, action in enumerate(found) if action.event == fault.event]
        first = places[0]
        if first + 1 < len(found):
            found[first], found[first + 1] = found[first + 1], found[first]
    return found


# Making one.


def _call(rng: random.Random, size: int, plain: bool, ops: list[str], tag: int) -> Call:
    op = rng.choice(ops)
    how = "at once"
    if op not in (*OBJECTS, "monitored_barrier", *COALESCED) and rng.random() < 0.35:
        how = rng.choice(["wait", "wait", "twice", "poll", "future", "refused"])
    shape = SHAPES[0] if plain else rng.choice(SHAPES)
    if not shape and op not in ("all_reduce", "broadcast", "reduce", "messages", "batch"):
        shape = (3,)
    dtype = DTYPES[0] if plain else rng.choice(DTYPES)
    kinds = [kind for kind in KINDS if kind != "AVG" or dtype == "float32"][: 4 if plain else None]
    return Call(
        op,
        shape,
        dtype,
        rng.choice(kinds) if "reduce" in op else "SUM",
        rng.randrange(size),
        how,
        rng.randrange(4) if op in ("all_to_all", "all_to_all_single") else 0,
        tag,
        rng.randrange(1, size) if size > 1 else 0,
    )


def _event(rng: random.Random, groups: tuple[tuple[int, ...], ...], plain: bool, tag: int) -> Event:
    world = groups[0]
    reads = tuple(rank for rank in world if rng.random() < 0.15)
    if rng.random() < 0.2:
        count = 1 if plain else rng.randint(1, 3)
        chosen = tuple(rng.randrange(len(groups)) for _ in range(count))
        ops = {1: [op for op in LAZY if op != "batch"]}  # of a group of one rank: there is no peer
        calls = tuple(
            dataclasses.replace(
                _call(rng, len(groups[g]), plain, ops.get(len(groups[g]), LAZY), tag),
                how="at once",
                splits=0,
            )
            for g in chosen
        )
        # These run what is pending before: one has split sizes, the other receives.
        runs = ["functional all_to_all", *(["batch"] if len({*chosen}) > 1 else [])]
        alone = next((i for i in range(count) if calls[i].op in runs), None)
        if alone is not None:
            return Event((calls[alone],), (chosen[alone],), True, reads)
        return Event(calls, chosen, True, reads)
    group = rng.randrange(len(groups))
    size = len(groups[group])
    kind = rng.random()
    if kind < 0.2 and size > 1:
        return Event((_call(rng, size, plain, MESSAGES, tag),), (group,), False, reads)
    if kind < 0.3:
        return Event((_call(rng, size, plain, OBJECTS, tag),), (group,), False, reads)
    if kind < 0.36:
        return Event((_call(rng, size, plain, BARRIERS, tag),), (group,), False, reads)
    if kind < 0.46:  # two at a time, waited for in the other order
        two = [_call(rng, size, plain, COLLECTIVES[:11], tag) for _ in range(2)]
        if plain:
            two[1] = two[0]
        calls = tuple(dataclasses.replace(call, how="together") for call in two)
        return Event(calls, (group,) * 2, False, reads)
    return Event((_call(rng, size, plain, COLLECTIVES, tag),), (group,), False, reads)


def _other(rng: random.Random, call: Call, size: int) -> Call | None:
    """The call, but for one field that ranks must agree on."""
    ways: list[Call] = []
    if call.op in (*REDUCTIONS, "broadcast", "gather", "scatter", *GATHERS):
        others = [op for op in (*REDUCTIONS, "broadcast", *GATHERS[:3]) if op != call.op]
        ways.append(dataclasses.replace(call, op=rng.choice(others), splits=0))
    if call.op in (*OBJECTS, *BARRIERS, *COALESCED):
        ways.append(Call("all_reduce"))
    else:
        shapes = [shape for shape in [(3,), (2, 3), (3, 2), (5,)] if shape != call.shape]
        ways.append(dataclasses.replace(call, shape=rng.choice(shapes)))
        dtypes = [dtype for dtype in ("float32", "int32") if dtype != call.dtype]
        kind = "SUM" if call.kind == "AVG" else call.kind
        if call.kind != "AVG":
            ways.append(dataclasses.replace(call, dtype=rng.choice(dtypes), kind=kind))
    if call.op in REDUCTIONS:
        kinds = [kind for kind in ("SUM", "MAX", "MIN", "PRODUCT") if kind != call.kind]
        ways.append(dataclasses.replace(call, kind=rng.choice(kinds)))
    if call.op in ROOTED and size > 1:
        ways.append(dataclasses.replace(call, root=(call.root + 1) % size))
    if call.op == "all_to_all_single" and call.splits:
        ways.append(dataclasses.replace(call, splits=call.splits % 3 + 1))
    if call.is_message():
        ways.append(dataclasses.replace(call, tag=call.tag + 1000))
        ways = [way for way in ways if way.op == call.op != "objects sent"]
        if size > 2:
            ways.append(dataclasses.replace(call, peer=call.peer % (size - 1) + 1))
    return rng.choice(ways) if ways else None


def _fault(
    rng: random.Random,
    groups: tuple[tuple[int, ...], ...],
    events: list[Event],
    kinds: dict[str, int],
) -> tuple[Fault, list[Event]]:
    """A fault at one of the events; behind it nothing is left in the graph."""
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    candidates = [i for i, e in enumerate(events) if not e.lazy and len(groups[e.groups[0]]) > 1]
    if kind == "none" or not candidates:
        return Fault(), events
    at = rng.choice(candidates)
    events = events[: at + 1] + [event for event in events[at + 1 :] if not event.lazy]
    event = events[at]
    group = event.groups[0]
    rank = rng.choice(groups[group])
    if kind == "differ":
        if len(event.calls) > 1:
            event = dataclasses.replace(event, calls=event.calls[:1], groups=event.groups[:1])
            events[at] = event
        other = _other(rng, event.calls[0], len(groups[group]))
        if other is None or other == event.calls[0]:
            return Fault(), events
        return Fault(kind, rank, at, other), events
    if kind == "other group":
        others = [
            g
            for g, members in enumerate(groups)
            if g != group and rank in members and len(members) == len(groups[group])
        ]
        if not others or len(event.calls) > 1 or event.calls[0].is_message():
            return Fault(), events
        return Fault(kind, rank, at, rng.choice(others)), events
    if kind == "end":
        if group == 0:
            return Fault("stop", rank, at), events
        return Fault(kind, rank, at, group), events
    return Fault(kind, rank, at), events


def groups_of(rng: random.Random, world: int) -> tuple[tuple[int, ...], ...]:
    """The world, and up to three more: of any ranks in any order, some twice, some of one."""
    groups = [tuple(range(world))]
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3]) if world > 1 else 0):
        if len(groups) > 1 and rng.random() < 0.3:
            groups.append(rng.choice(groups))
            continue
        size = rng.choice([1, 2, 2, 2, *([3] if world > 2 else []), world])
        members = rng.sample(range(world), size)
        groups.append(tuple(members))
    return tuple(groups)


def drawn(seed: int, world: int, where: str, killed: bool = False) -> Program:
    """A program whose time limits are not yet set."""
    rng = random.Random(f"{seed}/{world}/{where}")
    plain = rng.random() < PLAIN
    groups = groups_of(rng, world)
    events = [_event(rng, groups, plain, tag) for tag in range(rng.randint(1, rng.choice([4, 12])))]
    faults = KILLS if killed else NO_FAULTS if where == STAYING else FAULTS
    fault, events = _fault(rng, groups, events, faults)
    if fault.kind == "none" and rng.random() < 0.3:
        group = rng.randrange(len(groups))
        tag = 500 + len(events)  # which objects are sent without
        call = _call(rng, len(groups[group]), plain, [ANYONE], tag)
        call = dataclasses.replace(call, how="at once")
        events.insert(rng.randrange(len(events) + 1), Event((call,), (group,)))
    return Program(seed, world, where, groups, tuple(events), fault, plain=plain)


@functools.lru_cache(maxsize=4)  # of all ranks on threads
def program(seed: int, world: int, where: str, killed: bool = False) -> Program:
    """The program of that seed, with the time limits that its waits need."""
    import world_oracle  # which plays it

    for attempt in range(20):
        found = world_oracle.made(drawn(seed + attempt * 1_000_003, world, where, killed))
        if found is not None and (not killed or found.fault.kind in KILLS):
            return dataclasses.replace(found, seed=seed)
    raise AssertionError(f"no program of seed {seed} ends")
