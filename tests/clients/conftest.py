"""Two runs of four ranks a test: with torch_xla, and on gloo."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "clients":
            item.add_marker(pytest.mark.timeout(600))
