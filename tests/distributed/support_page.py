"""docs/support.md, from what was seen on ranks and from the capability table."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable

import torch
from rows import SECTIONS
from support import RANKS, Node, Seen

from torch_xla_cc.capabilities import _grid, explain

_INTRO = f"""\
# What becomes of each call

Look up here what a call of torch.distributed becomes where ranks are threads, CPU processes, a pod,
TPUs or GPUs. Written by `make support`, from what `tests/distributed/test_support.py` sees; do not
edit.

The rows are calls of torch.distributed on float32 tensors, sums, on {RANKS} ranks, in the group of
all ranks if nothing else is said. In each way to have ranks, each call is made, and what it gives
is compared with what gloo gives for CPU tensors. `record()` says which nodes it made and what they
were lowered to, and the flight recorder what the backend was asked for.

- **native**: a node in the graph, lowered to the instruction that HLO has for it.
- **fallback**: a node in the graph, where the device's compiler does not take that instruction, or
  HLO has none. It becomes the instructions that stand behind.
- **host**: no node. The tensors go through the memory of the host: between threads by handing them
  over, between processes by gloo. The call is made at once, outside of the graph.
- **native, host** and the like: the call is several of the backend, one of each.
- **-**: the backend is not called.
- **ranks differ**: only members have the node, so that the ranks run different programs. Whether a
  TPU or a GPU takes that was not seen.

TPU and GPU: nothing has run there. What is in the graph and what goes through the host was seen on
CPU threads with the backend that processes on such devices get. What becomes of the nodes is what
the [capability table](capabilities.md) says for {{tpu}} and {{gpu}}. Where one of them differs,
it is named. Other types, reduce kinds and forms of groups are in that table; what a call
means, and how processes on CPU work, is in [distributed.md](distributed.md)."""

_NOTES = {
    "Other forms": """\
PyTorch's own `monitored_barrier` and `split_group` take XLA devices after `install()`; the rows are
those of `torch_xla_cc.distributed`. `in_graph()` is of it too: all ranks make the same calls.
""",
    "Objects": """\
In a group that has a backend for CPU tensors, objects travel by that: by gloo in a world of
`"cpu:gloo,xla:xla_cc"`. The rows are for a group of `"xla_cc"` alone.
""",
    "Functional collectives": """\
`all_to_all_single` always has split sizes here: where none are given, PyTorch fills in equal ones.
No rank can tell from its own that those of all are equal.
""",
}

_DTYPES = {"f32": torch.float32, "s64": torch.int64, "u8": torch.uint8}
_TARGETS = {
    kind: [device.target for device in _grid.DEVICES if device.target.startswith(kind)]
    for kind in ("tpu", "gpu")
}


def page(seen: Callable[[str, str], list[Seen]]) -> str:
    """The text; `seen` is support.observe."""
    names = {kind: ", ".join(f"`{name}`" for name in _sorted(_TARGETS[kind])) for kind in _TARGETS}
    lines = [_filled(_INTRO.format(**names)), ""]
    for title, rows in SECTIONS.items():
        lines += [f"## {title}", "", *([_NOTES[title]] if title in _NOTES else [])]
        lines += [
            "| call | nodes | CPU threads | CPU processes | pod | TPU | GPU |",
            "|---" * 7 + "|",
        ]
        for label in rows:
            threads = seen("threads", label)
            cells = [_ops(threads), _cell(threads), _cell(seen("processes", label))]
            cells.append(_cell(seen("pod", label)))
            cells += [_ahead(seen("in the graph", label), kind, _ops(threads)) for kind in _TARGETS]
            lines.append(f"| {label} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _sorted(targets: Iterable[str]) -> list[str]:
    return sorted(targets, key=lambda name: [int(x) if x.isdigit() else x for x in _split(name)])


def _split(name: str) -> list[str]:
    return re.split(r"(\d+)", name)


def _filled(text: str) -> str:
    """Paragraphs that names made too long, in lines of 100 columns."""
    parts = text.split("\n\n")
    for i, part in enumerate(parts):
        if any(len(line) > 100 for line in part.splitlines()):
            parts[i] = textwrap.fill(part, 100, break_long_words=False, break_on_hyphens=False)
    return "\n\n".join(parts)


def _nodes(seen: list[Seen]) -> list[Node]:
    return max((rank.nodes for rank in seen), key=len)


def _unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))


def _ops(seen: list[Seen]) -> str:
    return ", ".join(_unique(node.op for node in _nodes(seen))) or "-"


def _said(rule: str, opcodes: Iterable[str]) -> str:
    return "native" if rule == "native" else f"{rule}: {', '.join(_unique(opcodes))}"


def _of_calls(seen: list[Seen], words: Iterable[str]) -> str:
    """What became of the nodes, and of calls that made none."""
    busiest = max(seen, key=lambda rank: len(rank.asked))
    host = ["host"] if len(busiest.asked) > len(busiest.nodes) else []
    return ", ".join([*_unique(words), *host]) or "-"


def _cell(seen: list[Seen]) -> str:
    return _of_calls(seen, (_said(node.rule, node.opcodes) for node in _nodes(seen)))


def _ahead(seen: list[Seen], kind: str, ops: str) -> str:
    """On the targets of a kind."""
    nodes = _nodes(seen)
    by_target = {
        target: _of_calls(seen, (_on(target, node) for node in nodes)) for target in _TARGETS[kind]
    }
    ((usual, _),) = Counter(by_target.values()).most_common(1)
    text = usual if not nodes or _ops(seen) == ops else f"{_ops(seen)}: {usual}"
    for other in _unique(said for said in by_target.values() if said != usual):
        names = _sorted(name for name, said in by_target.items() if said == other)
        text += f"; {', '.join(name.partition(':')[2] for name in names)}: {other}"
    return text if all(rank.nodes == seen[0].nodes for rank in seen) else f"{text}; ranks differ"


def _on(target: str, node: Node) -> str:
    reduce = re.search(r"reduce_type=(\w+)", node.name)
    dtype = _DTYPES[node.operands[0].partition("[")[0]]
    kind = {"reduce_type": reduce[1]} if reduce else {}
    found = explain(node.op, target, dtype, groups=form(node), **kind)
    return _said(found.rule, found.opcodes)


def form(node: Node) -> str:
    """Of its groups, as capabilities.explain names it; those of the rows are in order."""
    if node.op == "collective_permute":
        return "ring" if len(re.findall(r"\(\d+, ?\d+\)", node.name)) == RANKS else "chain"
    if "groups=world" in node.name:
        return "world"
    if sum(map(len, node.groups)) < RANKS:
        return "partial"
    return "equal" if len(set(map(len, node.groups))) == 1 else "unequal"
