"""Every public name has documentation, and stands in the API reference."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import torch_xla_cc
from torch_xla_cc import adapters

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/api"
DIRECTIVES = re.findall(
    r"^::: (\S+)", "\n".join(page.read_text() for page in PAGES.glob("*.md")), re.M
)
PUBLIC = ("xla_model", "functions", "regions", "spmd", "capabilities", "distributed")
MODULES = (
    "torch_xla_cc",
    *(f"torch_xla_cc.{name}" for name in PUBLIC),
    *(
        f"torch_xla_cc.adapters.{module.name}"
        for module in pkgutil.iter_modules(adapters.__path__)
        if not module.name.startswith("_")
    ),
)
# What inspect and compare_ranks return.
REPORTS = [name.rpartition(".")[::2] for name in DIRECTIVES if "._inspect." in name]


def names(module):
    """Those of __all__; else what the module defines itself."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def members(owner):
    """Public methods and properties of a class that are its own, or of its bases of ours."""
    for base in owner.__mro__:
        if base.__module__.startswith("torch_xla_cc"):
            for name, value in vars(base).items():
                # A field has its default there, or nothing.
                if not name.startswith("_") and (callable(value) or isinstance(value, property)):
                    yield name, value


def undocumented(path, value):
    if not (inspect.isclass(value) or callable(value)):
        return
    if not (value.__doc__ or "").strip() or value.__doc__.startswith(f"{value.__name__}("):
        yield path  # what a dataclass writes itself is not a docstring
    if inspect.isclass(value):
        for name, member in members(value):
            if not (member.__doc__ or "").strip():
                yield f"{path}.{name}"


@pytest.mark.parametrize("name", MODULES)
def test_names_have_documentation(name):
    module = importlib.import_module(name)
    assert module.__doc__
    public = names(module)
    assert public
    missing = [
        path for one in public for path in undocumented(f"{name}.{one}", getattr(module, one))
    ]
    assert missing == []


@pytest.mark.parametrize(("module", "name"), REPORTS)
def test_reports_have_documentation(module, name):
    value = getattr(importlib.import_module(module), name)
    assert list(undocumented(name, value)) == []


def test_all_are_in_the_reference():
    assert len(DIRECTIVES) == len(set(DIRECTIVES))
    for name in MODULES:
        if name in DIRECTIVES:
            continue
        for one in names(importlib.import_module(name)):
            if f"{name}.{one}" not in DIRECTIVES:  # a module has a page of its own
                assert inspect.ismodule(getattr(torch_xla_cc, one)), f"{name}.{one}"
                assert f"{name}.{one}" in DIRECTIVES or (PAGES / f"{one}.md").exists()
