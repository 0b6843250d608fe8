"""Private names of torch and torch_xla come from one file, and are all there."""

import ast
import sys
from pathlib import Path

import pytest

import torch_xla_cc
from torch_xla_cc._runtime import private, versions

PACKAGE = Path(torch_xla_cc.__file__).parent
# It is the program of a child process, which imports nothing of ours.
FILES = sorted(
    {*PACKAGE.rglob("*.py"), *PACKAGE.with_name("txcc").rglob("*.py")}
    - {PACKAGE / "_aot/cpu_child.py"}
)
THEIRS = ("torch", "torch_xla")
HERE = "torch_xla_cc._runtime.private"


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def is_here(node):
    """Whether it imports of private.py, by its path or from a folder beside it."""
    return HERE.endswith(node.module or "?") if node.level else node.module == HERE


def is_theirs_or_here(node):
    return is_here(node) or (node.level == 0 and node.module.partition(".")[0] in THEIRS)


def names_of(tree):
    """What a file imports of theirs: by the name that it has there, the name here."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in THEIRS:
                    top = alias.asname or alias.name.partition(".")[0]
                    found[top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and is_theirs_or_here(node):
            for alias in node.names:
                if is_here(node):
                    found[alias.asname or alias.name] = alias.name
                else:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def uses(source):
    """(line, name here or path, private attribute or None) of what is private in a file."""
    tree = ast.parse(source)
    names = names_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "level", 0) == 0:
            for alias in node.names:
                module = getattr(node, "module", None)
                if module == HERE:
                    continue
                path = f"{module}.{alias.name}" if module else alias.name
                if path.partition(".")[0] in THEIRS and any(map(is_private, path.split("."))):
                    yield node.lineno, path, None
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            path, below = [], node.value
            while isinstance(below, ast.Attribute):
                path.insert(0, below.attr)
                below = below.value
            if isinstance(below, ast.Name) and below.id in names:
                yield node.lineno, ".".join([names[below.id], *path]), node.attr
        elif isinstance(node, ast.Call):
            # What is replaced, or looked up, by a name in quotes.
            texts = [x.value for x in node.args[1:2] if isinstance(x, ast.Constant)]
            owner = node.args[0] if node.args else None
            if isinstance(owner, ast.Name) and owner.id in names:
                for text in texts:
                    if isinstance(text, str) and is_private(text):
                        yield node.lineno, names[owner.id], text


@pytest.mark.parametrize(
    "file", FILES, ids=lambda file: file.relative_to(PACKAGE.parent).as_posix()
)
def test_names_come_from_one_file(file):
    if file.name == "private.py":
        return
    past = [
        f"{file.name}:{line}: {path}{'.' + name if name else ''}"
        for line, path, name in uses(file.read_text())
        if name is None or name not in private._ATTRIBUTES.get(path, ())
    ]
    assert past == [], "name them in _runtime/private.py"


def test_what_the_test_sees():
    source = """
import torch
import torch.nn as nn
from torch import _C
from torch_xla._internal import pjrt
from torch_xla_cc._runtime.private import XLAC
torch._is_functional_tensor(x)
nn.Module._apply(m)
XLAC._xla_nothing()
made.put(nn, "_apply", ours)
x._own, torch.__version__, nn.Module.apply
"""
    assert sorted(found[0] for found in uses(source)) == [4, 5, 7, 8, 9, 10]


def test_all_are_there():
    assert list(private.missing()) == []
    used = {(path, name) for file in FILES for _, path, name in uses(file.read_text()) if name}
    listed = {(path, name) for path, all_ in private._ATTRIBUTES.items() for name in all_}
    # Those that stand in a list of names, or are asked of a variable.
    assert {name for _, name in listed - used} <= set(words_of_all())


def words_of_all():
    for file in FILES:
        if file.name != "private.py":
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value
                elif isinstance(node, ast.Attribute):
                    yield node.attr


def test_what_is_gone(monkeypatch):
    monkeypatch.setitem(private._PLACES, "gone", "torch._dynamo:gone")
    monkeypatch.setitem(private._PLACES, "moved", "torch._moved")
    monkeypatch.setitem(private._ATTRIBUTES, "pjrt", ("_renamed",))
    assert list(private.missing()) == [
        "torch._dynamo:gone",
        "torch._moved",
        "torch_xla._internal.pjrt._renamed",
    ]
    with pytest.raises(
        versions.UnsupportedVersion, match=r"uses torch._dynamo:gone, and it is not"
    ):
        _ = private.gone
    with pytest.raises(AttributeError, match="no attribute 'never'"):
        _ = private.never
    assert "gone" not in vars(sys.modules[HERE])
