"""What is missing is told with a command that can bring it, on the Python that runs."""

import sys
from collections import namedtuple

import pytest

from torch_xla_cc._runtime import versions

_Version = namedtuple("_Version", "major minor")


@pytest.mark.parametrize(
    ("extra", "minors"), [("aot", {11, 12}), ("pod", {11, 12, 13}), ("aot-gpu", {10, 11, 12, 13})]
)
def test_what_brings_an_extra(monkeypatch, extra, minors):
    for minor in (10, 11, 12, 13):
        monkeypatch.setattr(sys, "version_info", _Version(3, minor))
        said = versions.how_to_install(extra)
        assert f"pip install 'torch_xla_cc[{extra}]'" in said
        assert (f"and this is 3.{minor}" in said) == (minor not in minors)


def test_what_brings_the_pod(monkeypatch):
    import txcc_pod  # which torch_xla imports

    assert f"{sys.executable} -m pip install" in txcc_pod._how_to_install()
    monkeypatch.setattr(sys, "version_info", _Version(3, 10))
    assert txcc_pod._how_to_install() == "It is for Python 3.11 or later, and this is 3.10"
