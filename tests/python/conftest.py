"""Ends the worker processes with the session; see worlds.py."""

from collections.abc import Iterator

import pytest
import worlds


@pytest.fixture(scope="session", autouse=True)
def _workers() -> Iterator[None]:
    yield
    worlds.close_all()
