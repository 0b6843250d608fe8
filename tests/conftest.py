"""What all tests share: their order, their layers, and the end of the ranks' processes."""

from collections.abc import Iterator

import processes
import pytest
import worlds

# One of these that begins last is waited for by all others: xdist hands files out in this order.
_LONG = ("test_torch_suite.py", "test_late_ranks.py", "test_random_programs.py", "test_faults.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(_LONG)))


@pytest.fixture(scope="session", autouse=True)
def _ranks() -> Iterator[None]:
    yield
    processes.close_all()
    worlds.close_all()
