"""HLO text, read line by line: what XLA dumps, and what programs print.

A dump may be larger than memory should be, and come from anywhere: it is read as a stream, of which
one computation is held at a time, and what is not HLO is an HloSyntaxError with line and column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from . import attributes, products
from .instruction import Instruction, Source
from .opcodes import PRODUCTS, has_source, is_collective


class HloSyntaxError(ValueError):
    """Text that is not HLO."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column


@dataclass(slots=True)
class Computation:
    """Instructions, each after its operands; in a scheduled module in the order they run in."""

    name: str
    is_entry: bool
    instructions: list[Instruction] = field(default_factory=list)
    root: Instruction | None = None  # whose value is that of the computation


@dataclass(slots=True)
class Header:
    """What stands before the computations of a module."""

    name: str = ""
    scheduled: bool = False
    replicas: int = 1
    partitions: int = 1


_HEADER = re.compile(r"HloModule\s+([^\s,]+)")
_COUNT = re.compile(r"(replica_count|num_partitions)=(\d{1,9})\b")
# Hostile text must not take more time than its length: a pattern that is searched for stops where
# it could begin again.
_COMPUTATION = re.compile(r"(ENTRY\s+)?%?([^\s(%]+)\s*(?:\(.*)?\{$")
_INSTRUCTION = re.compile(r"\s*(?:ROOT\s+)?%?([^\s=%]+)\s*=\s*")
_OPCODE = re.compile(r"\s*([a-z][\w-]*)\(")
_PAREN = re.compile(r"[()]")
_NAME = re.compile(r"%([^\s,(){}]+)")
_IN_BRACKETS = re.compile(r"\[[^\[\]]*\]|\{[^{}]*\}|/\*[^*]*\*/")
_CALLED = re.compile(
    r"\b(?:calls|to_apply|body|condition|true_computation|false_computation|select|scatter"
    r"|branch_computations|called_computations)=(\{[^{}]*\}|[^\s,{}]+)"
)
_STRING = r'"((?:[^"\\]|\\.)*)"'
_METADATA = re.compile(
    rf"\b(op_type|op_name|source_file|source_line|stack_frame_id)=(?:{_STRING}|(\d{{1,9}})\b)"
)
_PARAMETER = re.compile(r"\s*parameter\((\d{1,9})\)")
_INDEX = re.compile(r"\bindex=(\d{1,9})\b")
_CUT = re.compile(r"\bslice=\{([\[\]\d:,\s]*)\}")
_RANGE = re.compile(r"\[(\d{1,18}):(\d{1,18})(?::(\d{1,18}))?\]")
_TARGET = re.compile(rf"\bcustom_call_target={_STRING}")
_CHANNEL = re.compile(r"\bchannel_id=(\d{1,18})\b")
_GROUPS = re.compile(
    r"\breplica_groups=(\{(?:\{[^{}]*\}|[^{}])*\}|\[[^\]]*\]<=\[[^\]]*\](?:T\([^)]*\))?)"
)
_PAIRS = re.compile(r"\bsource_target_pairs=(\{(?:\{[^{}]*\}|[^{}])*\})")
_DIMENSIONS = re.compile(r"\bdimensions=\{([\d,\s]*)\}")
_SEND_PAIRS = re.compile(rf"_xla_send_recv_source_target_pairs={_STRING}")
_TUPLE = re.compile(r"\([^()]*\)")
_DEEPEST = 8  # tuples in tuples
_WITHOUT_OPERANDS = frozenset({"constant", "parameter"})
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_ROW = re.compile(r'\s*(\d{1,9})\s+(?:"((?:[^"\\]|\\.)*)"|\{([^}]*)\})\s*$')
_PART = re.compile(r"(\w+)=(\d{1,9})")


class Reader:
    """One module, from its lines. `header` is complete when the first computation has come."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.header = Header()
        self._lines = enumerate(lines, 1)
        self._tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}

    def computations(self) -> Iterator[Computation]:
        """Callees before their callers."""
        table = ""
        computation: Computation | None = None
        by_name: dict[str, Instruction] = {}
        number = 0
        for number, line in self._lines:
            text = line.strip()
            if not text:
                table = ""
            elif computation is not None:
                if text.startswith("}"):
                    yield computation
                    computation = None
                    by_name = {}
                else:
                    instruction = self._instruction(line, number, computation, by_name)
                    by_name[instruction.name] = instruction
                    computation.instructions.append(instruction)
                    if text.startswith("ROOT "):
                        computation.root = instruction
            elif text.startswith("HloModule"):
                self._read_header(text, number)
            elif text in _TABLES:
                table = text
            elif table:
                self._read_row(table, line, number)
            elif found := _COMPUTATION.match(text):
                computation = Computation(found[2], found[1] is not None)
            elif not text.startswith("//"):
                raise HloSyntaxError("expected a computation, 'name (...) -> ... {'", number, 1)
        if computation is not None:
            raise HloSyntaxError(f"computation {computation.name} does not end", number, 1)
        if not self.header.name:
            raise HloSyntaxError("expected 'HloModule name'", max(number, 1), 1)

    def _read_header(self, text: str, number: int) -> None:
        found = _HEADER.match(text)
        if not found or self.header.name:
            raise HloSyntaxError("expected one 'HloModule name'", number, 1)
        counts = dict(_COUNT.findall(text))
        self.header = Header(
            name=found[1],
            scheduled="is_scheduled=true" in text,
            replicas=int(counts.get("replica_count", 1)),
            partitions=int(counts.get("num_partitions", 1)),
        )

    def _read_row(self, table: str, line: str, number: int) -> None:
        row = _ROW.match(line)
        if not row:
            raise HloSyntaxError(f"expected a row of {table}", number, 1)
        self._tables[table][int(row[1])] = row[2] if row[2] is not None else row[3]

    def _instruction(
        self, line: str, number: int, computation: Computation, by_name: dict[str, Instruction]
    ) -> Instruction:
        def wrong(message: str, at: int) -> HloSyntaxError:
            return HloSyntaxError(message, number, at + 1)

        named = _INSTRUCTION.match(line)
        if not named:
            raise wrong("expected an instruction, 'name = type opcode(...)'", 0)
        start = named.end()
        end = _closed(line, start) if line.startswith("(", start) else line.find(" ", start)
        opcode = _OPCODE.match(line, end) if end >= 0 else None
        if not opcode:
            raise wrong("expected a type and an opcode", start)
        instruction = Instruction(
            name=named[1],
            opcode=opcode[1],
            type=line[start:end],
            operands=(),
            called=(),
            computation=computation.name,
            in_entry=computation.is_entry,
        )
        if instruction.opcode in _WITHOUT_OPERANDS:
            if number_of := _PARAMETER.match(line, end):
                instruction.number = int(number_of[1])
            return instruction  # a constant may be as long as it likes
        first = opcode.end()
        end = _closed(line, first - 1)
        if end < 0:
            raise wrong("expected ')' after the operands", first)
        operands = []
        for name in _operands(line[first : end - 1]):
            if name not in by_name:
                raise wrong(f"operand {name[:80]!r} is not defined before it", first)
            operands.append(by_name[name])
        instruction.operands = operands
        rest = line[end:]
        if "=" not in rest:
            return instruction
        # XLA prints metadata behind other attributes. Those of collectives may be anywhere.
        own, _, metadata = rest.partition("metadata={")
        if "=" in own:
            instruction.called = tuple(
                name.strip().lstrip("%")
                for names in _CALLED.findall(own)
                for name in names.strip("{}").split(",")
                if name.strip()
            )
        if metadata and has_source(instruction.opcode):
            instruction.source = self._source(metadata)
        if instruction.opcode == "get-tuple-element" and (place := _INDEX.search(own)):
            instruction.number = int(place[1])
        if instruction.opcode == "slice" and (cut := _CUT.search(own)):
            instruction.cut = tuple(
                (int(start), int(limit), int(stride or 1))
                for start, limit, stride in _RANGE.findall(cut[1])
            )
        if "custom_call_target=" in own and (target := _TARGET.search(own)):
            instruction.custom_call_target = target[1]
        if instruction.opcode in PRODUCTS:
            instruction.products = products.of_text(instruction, rest)
        if is_collective(instruction.opcode):
            try:
                _read_collective(instruction, rest)
            except ValueError as error:
                raise wrong(str(error), end) from None
        return instruction

    def _source(self, metadata: str) -> Source:
        found = {key: text or number for key, text, number in _METADATA.findall(metadata)}
        file = found.get("source_file", "")
        line = found.get("source_line", "")
        place = file, int(line) if line.isdecimal() else 0
        frame = found.get("stack_frame_id", "")
        if not file and frame.isdecimal():
            place = self._place(int(frame))
        return Source(found.get("op_type", ""), found.get("op_name", ""), *place)

    def _place(self, frame: int) -> tuple[str, int]:
        """File and line of a frame, from the tables that stand before the computations."""
        location = self._number("StackFrames", frame, "file_location_id")
        file = self._number("FileLocations", location, "file_name_id")
        return self._tables["FileNames"].get(file, ""), self._number(
            "FileLocations", location, "line"
        )

    def _number(self, table: str, row: int, key: str) -> int:
        return int(dict(_PART.findall(self._tables[table].get(row, ""))).get(key, 0))


def _closed(line: str, start: int) -> int:
    """Where the parenthesis that opens at `start` has been closed; -1 if it is not."""
    end = line.find(")", start)
    if end >= 0 and line.find("(", start + 1, end) < 0:
        return end + 1
    depth = 0
    for paren in _PAREN.finditer(line, start):
        depth += 1 if paren[0] == "(" else -1
        if depth == 0:
            return paren.end()
    return -1


def _operands(text: str) -> list[str]:
    """The names of operands, with or without their types, and with or without "%"."""
    if "%" in text:
        return _NAME.findall(text)
    text = _IN_BRACKETS.sub("", text)
    for _ in range(_DEEPEST):
        if "(" not in text:
            break
        text = _TUPLE.sub("", text)
    return [words[-1] for operand in text.split(",") if (words := operand.split())]


def _read_collective(instruction: Instruction, rest: str) -> None:
    if channel := _CHANNEL.search(rest):
        instruction.channel_id = int(channel[1])
    if found := _GROUPS.search(rest):
        instruction.groups = attributes.groups(found[1])
    elif "replica_groups=" in rest:
        raise ValueError("replica_groups: expected lists in braces, or [n,m]<=[...]")
    if found := _PAIRS.search(rest) or _SEND_PAIRS.search(rest):
        instruction.pairs = attributes.pairs(found[1])
    if found := _DIMENSIONS.search(rest):
        instruction.dimensions = tuple(int(n) for n in found[1].split(",") if n.strip())
