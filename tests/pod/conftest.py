"""The end of the pod's ranks."""

from collections.abc import Iterator

import pods
import pytest


@pytest.fixture(scope="session", autouse=True)
def _pods() -> Iterator[None]:
    yield
    pods.close_all()
