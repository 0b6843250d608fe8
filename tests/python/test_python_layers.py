"""The house of python/torch_xla_cc: what imports what, and how large the rooms are."""

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "torch_xla_cc"
FOLDER = Path(__file__).parents[2] / "python" / PACKAGE

# From the ground up. A file imports from its own floor, and from those below it.
FLOORS = (
    ("_C", "_runtime", "_hlo"),
    ("_pod",),
    ("_aot", "_threads", "_processes"),
    ("_ops",),
    ("xla_model", "functions", "_rings", "regions", "spmd", "distributed", "capabilities"),
    ("adapters",),
    ("_inspect", "_profile"),
    ("__init__",),
)
# On one floor, and strangers to each other.
APART = {
    *(("_runtime", "_hlo"), ("_aot", "_threads"), ("_hlo", "_pod")),
    ("distributed", "capabilities"),
}
# They run by their paths, in processes of their own, which know nothing of the package.
ALONE = {"_aot/child.py", "_aot/cpu_child.py", "_pod/probe_child.py", "_pod/start.py"}

FLOOR_OF = {name: floor for floor, names in enumerate(FLOORS) for name in names}
FILES = {
    ".".join(path.relative_to(FOLDER).with_suffix("").parts): path
    for path in sorted(FOLDER.rglob("*.py"))
}


def room(module: str) -> str:
    return module.partition(".")[0]


def module_of(name: str) -> str | None:
    """The file that a dotted name within the package is in; None for the extension module."""
    parts = name.split(".") if name else []
    for end in range(len(parts), -1, -1):
        for found in (".".join(parts[:end]), ".".join([*parts[:end], "__init__"])):
            if found in FILES:
                return found
        if parts[:end] == ["_C"]:
            return None
    raise AssertionError(name)


def imports(module: str) -> Iterator[str]:
    """The files that a file imports: anywhere in it, and also only for its types."""
    package = [PACKAGE, *module.split(".")[:-1]]
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base += [node.module] if node.module else []
            names = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        for name in names:
            head, _, rest = name.partition(".")
            if head == PACKAGE and (found := module_of(rest)) and found != module:
                yield found


GRAPH = {module: sorted(set(imports(module))) for module in FILES}


@pytest.mark.parametrize("module", FILES)
def test_imports_go_down(module):
    for other in GRAPH[module]:
        here, there = room(module), room(other)
        assert FLOOR_OF[there] <= FLOOR_OF[here], f"{module} imports {other}, from a floor above"
        assert not {(here, there), (there, here)} & APART, f"{module} imports {other}"


def test_there_is_no_circle():
    """Not within a folder either, nor by way of imports in functions."""
    left = {module: set(GRAPH[module]) for module in FILES}
    while ready := [module for module, others in left.items() if not others & left.keys()]:
        for module in ready:
            del left[module]
    assert not left, f"in circles, or above one: {sorted(left)}"


def test_files_of_other_processes_stand_alone():
    for path in ALONE:
        assert not GRAPH[path.removesuffix(".py").replace("/", ".")]


def test_folders_are_on_a_floor():
    assert {room(module) for module in FILES} | {"_C"} == set(FLOOR_OF)


def test_files_are_small():
    lines = {module: len(path.read_text().splitlines()) for module, path in FILES.items()}
    assert max(lines.values()) <= 400, max(lines, key=lambda module: lines[module])
    assert statistics.median(lines.values()) < 150
