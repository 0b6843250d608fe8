"""The order of the tests' files: xdist hands them out in it, one by one, to two workers."""

import pytest

# One of these that begins last is waited for by all others.
_LONG = ("test_random_programs.py", "test_torch_suite.py", "test_late_ranks.py", "test_faults.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(_LONG)))
