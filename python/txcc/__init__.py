"""The command `txcc`.

It stands beside the package torch_xla_cc, whose import takes seconds: only the commands that need
torch wait for it.
"""

from __future__ import annotations

import errno
import os
import sys

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> None:
    """Entry point of the command."""
    from txcc import cli, shells

    shells.register()
    if sys.stdout is None:  # as by >&-
        sys.exit("txcc: stdout is closed, so there is nowhere to print to")
    try:
        try:
            cli.txcc(prog_name="txcc")
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in _FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes the rest as it ends
        sys.exit(f"txcc: cannot print: {os.strerror(error.errno)}")
