"""The command `txcc`: torch_xla_cc._cli, or the reason why that cannot be imported."""

from __future__ import annotations

import sys
import types
from pathlib import Path


def main() -> None:
    """Entry point of the command."""
    try:
        if _reads_files_only(sys.argv[1:]):
            _pass_over_torch()
        try:
            from torch_xla_cc._cli import commands
        except ValueError as error:  # a variable of the environment
            if sys.argv[1:2] != ["doctor"]:
                raise ImportError(str(error)) from error
            _pass_over_torch(str(error))
            from torch_xla_cc._cli import commands
    except ImportError as error:
        sys.exit(f"txcc: {error}")
    commands.main()


def _reads_files_only(words: list[str]) -> bool:
    if "--" in words:
        words = words[: words.index("--")]  # what comes after is for the script
    command, *others = words or [""]
    dump = any(word.lstrip("-").partition("=")[0] == "dump" for word in others)
    return command == "compare" or (command == "inspect" and dump)


def _pass_over_torch(problem: str | None = None) -> None:
    """Have the package be found without what it imports for training, which takes seconds.

    What reads files of HLO needs neither torch nor the extension module. `problem`: why the package
    cannot be imported, for `txcc doctor`.
    """
    package = types.ModuleType("torch_xla_cc")
    package.problem = problem  # type: ignore[attr-defined]
    package.__path__ = [str(Path(__file__).with_name("torch_xla_cc"))]  # it lies beside this file
    sys.modules["torch_xla_cc"] = package


if __name__ == "__main__":
    main()
