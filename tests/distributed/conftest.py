"""Ends the processes of the ranks with the session; see processes.py and worlds.py."""

from collections.abc import Iterator

import processes
import pytest
import worlds


@pytest.fixture(scope="session", autouse=True)
def _ranks() -> Iterator[None]:
    yield
    processes.close_all()
    worlds.close_all()
