"""What follows from the measured capabilities: the table for C++ and the page of the docs.

python tools/capabilities            # after torch_xla_cc.capabilities probe, or shapes
python tools/capabilities --check    # 1 if they are not as they would be written
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import page
import shapes_page
import table

from torch_xla_cc.capabilities import _measured

_ROOT = Path(__file__).parents[2]
_TABLE = _ROOT / "lowering/capability/measured.inc"
_PAGE = _ROOT / "docs/capabilities.md"
_SHAPES = _ROOT / "docs/shapes.md"


def generate(measured_path: Path, check: bool) -> int:
    """Write the table for C++ and the page, or say whether they are as they would be written."""
    measured = _measured.load(measured_path)
    stale = []
    for path, text in (
        (_TABLE, table.table(measured)),
        (_PAGE, page.page(measured)),
        (_SHAPES, shapes_page.page()),
    ):
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path)
        if not check:
            path.write_text(text)
    for path in stale:
        print(f"{'Stale' if check else 'Wrote'}: {path.relative_to(_ROOT)}")
    return int(check and bool(stale))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/capabilities", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if they differ")
    parser.add_argument("--measured", type=Path, default=_measured.PATH)
    chosen = parser.parse_args(arguments)
    return generate(chosen.measured, chosen.check)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
