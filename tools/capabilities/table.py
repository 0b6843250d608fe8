"""lowering/capability/measured.inc: the cells that are not native, as rows for C++."""

from __future__ import annotations

from collections.abc import Iterable

from torch_xla_cc.capabilities._grid import COUNTS, KINDS, TYPES
from torch_xla_cc.capabilities._measured import Measured, ordered
from torch_xla_cc.capabilities._table import FORMS, OF_THREADS, rows


def _set(letter: str, values: frozenset[str], everything: Iterable[str]) -> str:
    if values >= set(everything):
        return "kAny"
    return "|".join(f"{letter}({_enumerator(value)})" for value in ordered(values))


def _enumerator(name: str) -> str:
    """As in C++, without the k: f8e4m3fn is F8E4M3FN, bf16 is BF16, pred is Pred."""
    return name.upper() if name in TYPES and name != "pred" else name.capitalize()


def table(measured: Measured) -> str:
    """The text of the file."""
    lines = [
        "// What compilers do not take. Written by `python tools/capabilities`,",
        f"// from python/torch_xla_cc/capabilities/measured.json of {measured.date}.",
        "// clang-format off",
    ]
    for device in measured.devices():
        for op, (forms, counts, kinds, types), least, reason in rows(measured, device):
            row = "ROW_OF_THREADS" if reason == OF_THREADS else "ROW"
            lines.append(
                f'{row}("{device}", k{op.title().replace("_", "")}, {_set("T", types, TYPES)}, '
                f"{_set('K', kinds, KINDS)}, {_set('F', forms, FORMS[op])}, "
                f'{_set("C", counts, COUNTS)}, {least}, "{_escaped(reason)}")'
            )
    return "\n".join([*lines, "// clang-format on", ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
