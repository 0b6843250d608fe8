"""Ahead-of-time compilation by the real compilers, on a machine without their devices."""

from .compiler import compile_hlo, compile_many
from .cpu import compile_on_cpu
from .errors import CompilerCrashed, CompilerError, CompilerMissing, CompilerTimeout
from .overrides import Option, Options, as_texts
from .program import CompiledProgram
from .query import collectives, elementwise_before
from .target import Target, parse_target

__all__ = [
    "CompiledProgram",
    "CompilerCrashed",
    "CompilerError",
    "CompilerMissing",
    "CompilerTimeout",
    "Option",
    "Options",
    "Target",
    "as_texts",
    "collectives",
    "compile_hlo",
    "compile_many",
    "compile_on_cpu",
    "elementwise_before",
    "parse_target",
]
