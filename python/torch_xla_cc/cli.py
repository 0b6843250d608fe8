"""python -m torch_xla_cc.cli: the command `txcc`. See _cli/commands.py."""

from __future__ import annotations

from torch_xla_cc._cli.commands import main as main

if __name__ == "__main__":
    main()
