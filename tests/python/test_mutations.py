"""tools/mutations.py names texts that are there: one that is gone breaks nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))

from mutations import MUTATIONS  # noqa: E402

LIST = ["git", "-C", str(ROOT), "ls-files", "python", "lowering", "torch_xla_cc"]


@pytest.mark.quick
def test_each_text_is_there_once():
    files = subprocess.run(LIST, capture_output=True, text=True, check=True).stdout.split()
    texts = [(ROOT / file).read_text(errors="replace") for file in files]
    for mutation in MUTATIONS:
        found = sum(text.count(mutation.text) for text in texts)
        assert found == 1, (mutation.name, found)
