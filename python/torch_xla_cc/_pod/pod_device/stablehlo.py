"""What has to be said in a program's StableHLO, which jaxlib makes of HLO, before it is compiled."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MAIN = "func.func @main("
_ARGUMENT = re.compile(r"%arg(\d+): tensor<[^<>]*(?:<[^<>]*>)?>")
_TENSOR = re.compile(r"tensor<(?:\d+x)*([^<>]*(?:<[^<>]*>)?)>")
_ALL_GATHER = re.compile(
    r'^ *\S+ = "stablehlo\.all_gather"(?P<call>\((?P<operands>[^)]*)\) .* : \((?P<types>[^)]*)\) -> )',
    re.MULTILINE,
)
_KEPT = """\
    {name}r = stablehlo.replica_id : tensor<ui32>
    {name}n = stablehlo.constant dense<{replicas}> : tensor<ui32>
    {name}p = stablehlo.compare LT, {name}r, {name}n : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
    {name}c = stablehlo.convert {name}r : (tensor<ui32>) -> tensor<{element}>
    {name}b = stablehlo.broadcast_in_dim {name}c, dims = [] : (tensor<{element}>) -> {type}
    {name} = stablehlo.select {name}p, {operand}, {name}b : tensor<i1>, {type}
"""


def with_donors(module: str, donors: Sequence[int]) -> str:
    """Outputs may take the buffers of these parameters: the conversion from HLO loses that."""
    wanted = set(donors)

    def marked(argument: re.Match[str]) -> str:
        attribute = " {jax.buffer_donor = true}" if int(argument[1]) in wanted else ""
        return argument[0] + attribute

    before, main, rest = module.partition(_MAIN)
    head, line_end, body = rest.partition("\n")
    return before + main + _ARGUMENT.sub(marked, head) + line_end + body


def with_gathers_kept(module: str, replicas: int) -> str:
    """No all_gather is folded away, for XLA cannot know that its operand is a constant.

    XLA:CPU makes a broadcast of the all_gather of one. But each rank traces a program of its own,
    and torch_xla makes constants of the scalars 0 and 1, and parameters of others: of
    `torch.full((n,), float(rank))` the all_gather would be gone on ranks 0 and 1, for which the
    others would wait. Of other collectives it folds none.
    """

    def kept(gather: re.Match[str]) -> str:
        lines, line = [], gather[0]
        operands = gather["operands"].split(", ")
        for i, kind in enumerate(_TENSOR.finditer(gather["types"])):
            fields = {"name": f"%kept{gather.start()}_{i}", "operand": operands[i]}
            fields |= {"type": kind[0], "element": kind[1]}
            lines.append(_KEPT.format(replicas=replicas, **fields))
            operands[i] = fields["name"]
        call = gather["call"].replace(f"({gather['operands']})", f"({', '.join(operands)})", 1)
        return "".join(lines) + line.replace(gather["call"], call)

    return _ALL_GATHER.sub(kept, module)
