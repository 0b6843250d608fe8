"""docs/support.md is what is seen; `make support` rewrites it."""

import functools
import os
from pathlib import Path

import pytest
import support
import support_page
from rows import ROWS

PAGE = Path(__file__).parents[2] / "docs/support.md"
NOTHING_ASKED = {"new_group", "split_group"}
# Only members call, so the others have no node of it.
OF_MEMBERS = {"all_reduce in a group of all ranks but one"}


@functools.cache
def seen(where, label):
    return support.observe(where, label)


@pytest.mark.parametrize("label", ROWS)
@pytest.mark.parametrize("where", support.WHERE)
def test_row(where, label):
    ranks = seen(where, label)
    assert all(rank.right for rank in ranks)
    assert any(rank.asked for rank in ranks) == (label not in NOTHING_ASKED)
    if where == "processes":
        assert not any(rank.nodes for rank in ranks)
    if where == "in the graph" and label not in OF_MEMBERS:
        # TPUs and GPUs run one program.
        assert all(rank.nodes == ranks[0].nodes for rank in ranks)


def test_page():
    text = support_page.page(seen)
    if os.environ.get("UPDATE_SUPPORT"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "make support rewrites it; read the diff"
