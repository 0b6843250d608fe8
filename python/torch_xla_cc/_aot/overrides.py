"""Options of compilers by name: "xla_tpu_enable_async_all_to_all", "xla_gpu_enable_triton_gemm"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

Option: TypeAlias = "str | bool | int | float"
Options: TypeAlias = "Mapping[str, Option]"

_NAME = re.compile(r"xla_\w+")
_OF_KINDS = {"xla_gpu_": "gpu", "xla_cpu_": "cpu", "xla_tpu_": "tpu", "xla_jf_": "tpu"}
# How libtpu and the CUDA plugin begin when they refuse an option and not the program; and XLA:CPU,
# which reads options as flags and ends its process.
_REFUSALS = re.compile(
    r"No such compile option: '(\w+)'|Failed to parse flag (\w+) |While setting option (\w+),"
    r"|TPU flag type mismatch: '(\w+)'|Unknown flags? in XLA_FLAGS: --(\w+)"
    r"|Couldn't interpret value .* for flag (\w+)"
)


def as_texts(options: Options | None, target: str) -> dict[str, str]:
    """As a compiler for `target` takes them. ValueError for one that would have no effect there."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(
            f"options is {type(options).__name__}, but it must be a dict of names and values"
        )
    texts = {}
    for name, value in (options or {}).items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"options has the name {name!r}, but it must be one of the compiler's, without "
                "dashes, such as 'xla_tpu_enable_async_all_to_all'"
            )
        if not isinstance(value, (str, bool, int, float)):
            raise TypeError(
                f"options: {name} is {type(value).__name__}, but it must be a string, a bool or a "
                "number"
            )
        if name.startswith("xla_dump_"):
            raise ValueError(
                f"options has {name}, but the program is read from the compiler's dump, which "
                "has its own. For dumps set XLA_FLAGS where the program runs"
            )
        kind = target.removeprefix("spmd:").partition(":")[0]
        of_kind = next((k for start, k in _OF_KINDS.items() if name.startswith(start)), kind)
        if of_kind != kind:
            raise ValueError(
                f"options has {name}, which is for {of_kind.upper()}, but the target is "
                f"{target!r}, whose compiler would not look at it. Leave it out"
            )
        text = str(value)
        if not text.isascii() or "\0" in text:
            raise ValueError(f"options: {name} = {text!a}, but it must be plain ASCII, without NUL")
        # The options that all of XLA shares know these two spellings only; libtpu's know any.
        texts[name] = text.capitalize() if text.lower() in ("true", "false") else text
    return texts


def refused(message: str, options: Mapping[str, str], target: str) -> ValueError | None:
    """The error for an option that the compiler's message is about, if it is about one."""
    found = _REFUSALS.search(message)
    name = next(filter(None, found.groups()), "") if found else ""
    if name not in options:
        return None
    lines = message[found.start() :].splitlines() if found else [""]
    return ValueError(
        f"options: {name} = {options[name]!r} is refused by the compiler for {target!r}: "
        f"{lines[0].strip().rstrip(':')}. Look up its name, and the values that it takes"
    )
