"""Who may include whom: a file sees those of its own floor and of floors below, in no circle.

For lowering/ and the pure parts of torch_xla_cc/ Bazel says the same (a BUILD in each folder), but
not what setup.py builds.
"""

import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# From below. A floor is files and folders; a folder is everything in it.
FLOORS = {
    "lowering": (
        tuple(f"lowering/{name}" for name in ("status.h", "errors.h", "hash.h", "collectives.def")),
        ("lowering/hlo",),
        ("lowering/target.h", "lowering/target.cc", "lowering/topology.h", "lowering/topology.cc"),
        ("lowering/model",),
        ("lowering/capability",),
        ("lowering/rules",),
        ("lowering/ops",),
        ("lowering/collective.h", "lowering/collective.cc"),
        (
            "lowering/lower.h",
            "lowering/lower.cc",
            "lowering/rank_slice.h",
            "lowering/rank_slice.cc",
        ),
    ),
    "torch_xla_cc": (
        (
            *(
                f"torch_xla_cc/{name}.h"
                for name in ("aged_cache", "errors", "site", "gil", "registration")
            ),
            *(
                f"torch_xla_cc/{name}{s}"
                for name in (
                    *(
                        "call_site",
                        "dtypes",
                        "living_tensors",
                        "made_tensors",
                        "python_side",
                        "views",
                    ),
                    "torch_function",
                )
                for s in (".h", ".cc")
            ),
        ),
        ("torch_xla_cc/groupcall",),
        ("torch_xla_cc/graph",),
        ("torch_xla_cc/threads",),
        tuple(
            f"torch_xla_cc/distributed/{name}{suffix}"
            for name in (
                *("tensors", "call_mode", "call_text", "transport", "work", "write_into"),
                *("reductions", "buffers", "profiler_events", "run_pending", "verify"),
            )
            for suffix in (".h", ".cc")
        ),
        ("torch_xla_cc/distributed/host",),
        ("torch_xla_cc/distributed/graph",),
        ("torch_xla_cc/distributed/paper",),
        ("torch_xla_cc/distributed/backend.h", "torch_xla_cc/distributed/backend.cc"),
        ("torch_xla_cc/distributed/kernels",),
        ("torch_xla_cc/distributed/bind.h", "torch_xla_cc/distributed/bind.cc"),
        ("torch_xla_cc/module.cc",),
    ),
    "pod": (
        ("pod/abi", "pod/failure.h"),
        ("pod/wire",),
        *(
            tuple(f"pod/{name}{suffix}" for name in names for suffix in (".h", ".cc"))
            for names in (
                ("event", "segments", "process", "element_type", "wanted"),
                ("link",),
                ("objects",),
                ("entry",),
            )
        ),
        ("pod/api",),
        ("pod/plugin.cc",),
        # Of device processes, and of no other file here.
        *(
            tuple(f"pod/memory/{name}{suffix}" for name in names for suffix in (".h", ".cc"))
            for names in (
                ("waiting",),
                ("region", "reduction"),
                ("windows", "messages"),
                ("group",),
            )
        ),
        ("pod/memory/names.def",),
        ("pod/memory/abi.cc",),
    ),
}
# What a tree stands on.
BELOW = {
    "torch_xla_cc": "lowering/",
    "pod": "python/torch_xla_cc/_pod/pod_device/",  # headers that mpi_wrapper.cc has as well
}
SUFFIXES = (".h", ".cc", ".def", ".inc")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def sources(tree: str) -> list[str]:
    """Paths of a tree, from the root."""
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / tree).rglob("*")
        if path.suffix in SUFFIXES
    )


def includes(file: str) -> list[str]:
    return INCLUDE.findall((ROOT / file).read_text())


def floor_of(file: str, tree: str) -> int:
    """The number of a file's floor, counted from below."""
    for number, floor in enumerate(FLOORS[tree]):
        if any(file == place or file.startswith(place + "/") for place in floor):
            return number
    raise AssertionError(f"{file} is on no floor of {tree}: name it in {Path(__file__).name}")


@pytest.mark.parametrize("tree", FLOORS)
def test_includes_go_down(tree):
    def is_up(file: str, other: str) -> bool:
        if other.startswith(f"{tree}/"):
            return floor_of(other, tree) > floor_of(file, tree)
        return tree not in BELOW or not other.startswith(BELOW[tree])

    upwards = [
        f"{file} includes {other}"
        for file in sources(tree)
        for other in includes(file)
        if is_up(file, other)
    ]
    assert upwards == []


@pytest.mark.parametrize("tree", FLOORS)
def test_no_circle(tree):
    done: set[str] = set()

    def walk(file: str, path: tuple[str, ...]) -> None:
        assert file not in path, " -> ".join([*path[path.index(file) :], file])
        if file not in done:
            for other in includes(file):
                walk(other, (*path, file))
            done.add(file)

    for file in sources(tree):
        walk(file, ())
    assert len(done) > 20


@pytest.mark.parametrize("tree", FLOORS)
def test_files_are_short(tree):
    lines = {file: len((ROOT / file).read_text().splitlines()) for file in sources(tree)}
    assert [file for file, count in lines.items() if count > 400] == []
    assert statistics.median(lines.values()) < 150
