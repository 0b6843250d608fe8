"""Values of options: what is allowed, what a misspelt one means, and how shells complete it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from txcc import package

# As in torch_xla_cc.capabilities, which cannot be asked without torch; a test compares them.
OPS = (
    "all_gather",
    "all_reduce",
    "reduce_scatter",
    "all_to_all",
    "collective_broadcast",
    "collective_permute",
    "send",
    "recv",
    "uneven_all_gather",
    "uneven_reduce_scatter",
    "uneven_all_to_all",
)


def targets() -> list[str]:
    """Examples of what can be compiled for, one of each generation."""
    package.stand_in()
    with package.in_parts():
        from torch_xla_cc._aot.target import examples
    return ["cpu", *examples()]


def generations() -> list[str]:
    """The same without topologies."""
    names = [name.rpartition(":" if name.startswith("tpu") else "x")[0] for name in targets()[1:]]
    return ["cpu", *names]


def meant(value: str, known: Iterable[str]) -> str:
    """A question, if the value is much like one that is known."""
    close = difflib.get_close_matches(value, list(known), 1)
    return f" Did you mean {close[0]!r}?" if close else ""


class Name(click.Choice[str]):
    """One of some names."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:  # noqa: ANN401
        return f"{super().get_invalid_choice_message(value, ctx)}{meant(str(value), self.choices)}"


class Completed(click.ParamType[str]):
    """A text, of which examples are known."""

    def __init__(self, name: str, examples: Callable[[], Sequence[str]]) -> None:
        self.name = name
        self._examples = examples

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return [CompletionItem(one) for one in self._examples() if one.startswith(incomplete)]


class Target(Completed):
    """A device to compile for."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        name = str(value)
        known = targets()
        with package.in_parts():
            from torch_xla_cc._inspect.compiled import check_target
        try:
            check_target(name)
        except ValueError as error:
            self.fail(f"{error}.{meant(name, known)}", param, ctx)
        return name


class Seconds(click.FloatRange):
    """A time limit."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(
        self,
        value: Any,  # noqa: ANN401
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        limit: float = super().convert(value, param, ctx)
        if not math.isfinite(limit):
            self.fail(f"{value} is not a number of seconds", param, ctx)
        return limit


class Setting(click.ParamType[tuple[str, str]]):
    """An option of a compiler."""

    name = "name=value"

    def convert(
        self,
        value: Any,  # noqa: ANN401
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals:
            self.fail(f"{value!r}, but it must be NAME=VALUE", param, ctx)
        return name.lstrip("-"), text


def format_option(*formats: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """--format, of those."""
    return click.option(
        "--format", type=Name(formats), default=formats[0], help="How to print the results."
    )


def source_option() -> Callable[[Callable[..., int]], Callable[..., int]]:
    """--source, of pages."""
    return click.option(
        "--source",
        "sources",
        type=click.Path(exists=True, file_okay=False),
        multiple=True,
        metavar="DIR",
        help="With --format=html: also quote .py files below DIR.",
    )


def refuse_sources(sources: Sequence[str], format: str) -> None:
    """Where no page is made."""
    if sources and format != "html":
        raise click.UsageError(f"--source has no effect beside --format={format}. Leave it out.")
