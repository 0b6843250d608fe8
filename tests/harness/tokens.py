"""Whether XLA:CPU ends a collective before it begins the next, in the text of what it compiled.

It knows of calls what they read and write; of collectives it keeps only the order in which they
begin, and a call begins before what is in it. So what meets other ranks (a call, a loop, branches)
has to write a token that the next one reads.
"""

import re
from typing import NamedTuple

from torch_xla_cc._hlo.opcodes import is_collective

_COMPUTATION = re.compile(r"^(?:ENTRY )?%(\S+) \(.*?\n}", re.M | re.S)
_INSTRUCTION = re.compile(r"^\s*(ROOT )?%(\S+) = (.*?) ([a-z][a-z0-9-]*)\((.*?)\)(.*)$", re.M)
_NAME = re.compile(r"%([\w.-]+)")
_CALLED = re.compile(r"(?:to_apply|condition|body|true_computation|false_computation)=%([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations={([^}]*)}")
_PASSES = ("get-tuple-element", "tuple", "copy", "bitcast")


class _Instruction(NamedTuple):
    name: str
    shape: str
    opcode: str
    operands: list[str]
    called: list[str]
    index: int  # of a tuple's element
    is_root: bool


def _instruction(match):
    root, name, shape, opcode, operands, rest = match.groups()
    called = _CALLED.findall(rest) + _NAME.findall("".join(_BRANCHES.findall(rest)))
    index = int(re.search(r"index=(\d+)", rest)[1]) if opcode == "get-tuple-element" else 0
    return _Instruction(name, shape, opcode, _NAME.findall(operands), called, index, bool(root))


class _Program:
    def __init__(self, text):
        self.computations = {
            match[1]: [_instruction(one) for one in _INSTRUCTION.finditer(match[0])]
            for match in _COMPUTATION.finditer(text)
        }

    def meets(self, computation):
        return any(self.is_met(one) for one in self.computations[computation])

    def is_met(self, one):
        return is_collective(one.opcode) or (
            one.opcode in ("call", "while", "conditional") and any(map(self.meets, one.called))
        )


def _sources(one, by_name, element=None):
    """The instructions of which a value is, or its elements are."""
    if one.opcode == "get-tuple-element":
        return _sources(by_name[one.operands[0]], by_name, one.index)
    if one.opcode == "tuple" and element is not None:
        return _sources(by_name[one.operands[element]], by_name)
    if one.opcode in _PASSES:
        return {name for x in one.operands for name in _sources(by_name[x], by_name, element)}
    return {one.name}


def unordered(text):
    """What may begin before what is written before it has ended; empty if nothing may."""
    program = _Program(text)
    asks = {
        one.called[0]  # condition, body
        for instructions in program.computations.values()
        for one in instructions
        if one.opcode == "while" and program.is_met(one)
    }
    changes = {
        called
        for instructions in program.computations.values()
        for one in instructions
        if one.opcode in ("call", "while") and program.is_met(one)
        for called in one.called
    } - asks
    found = []
    for computation, instructions in program.computations.items():
        by_name = {one.name: one for one in instructions}
        before = None
        for one in instructions:
            if not program.is_met(one):
                continue
            takes = set().union(*(_sources(by_name[x], by_name) for x in one.operands))
            if before is not None and before not in takes:
                found.append(f"{one.name} in {computation}, behind {before}")
            before = one.name
        if computation in changes:
            (root,) = [one for one in instructions if one.is_root]
            while root.opcode == "tuple":
                root = by_name[root.operands[-1]]
            made = {by_name[x].opcode for x in _sources(root, by_name)}
            if "parameter" in made:
                found.append(f"the end of {computation}")
    return found


def collectives(text):
    """How many there are."""
    every = _Program(text).computations.values()
    return sum(is_collective(one.opcode) for instructions in every for one in instructions)
