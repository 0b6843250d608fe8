"""tools/mutations.py names texts that are there: one that is gone breaks nothing."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))

import mutate  # noqa: E402


def test_each_text_is_there_once():
    for mutation in mutate.MUTATIONS:
        mutate.place(ROOT, mutation)  # or it exits
