"""Target strings, "kind:generation:topology": what to compile for, with no such device at hand."""

from __future__ import annotations

import importlib.util
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .errors import CompilerMissing

# For each TPU generation: an example topology, and the options without which libtpu does not
# describe one device a chip. A v4 chip has two cores that a program uses as one ("megacore").
_TPU: dict[str, tuple[str, dict[str, str]]] = {
    "v4": ("2x2x1", {"chip_config_name": "megacore_dense"}),
    "v5e": ("2x4", {}),
    "v5p": ("2x2x1", {}),
    "v6e": ("2x4", {}),
}

# libtpu would ask the cloud's metadata server what it runs on, and wait for an answer that never
# comes; would refuse to load beside a process that has it; and would write a log file a run.
_TPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
}


@dataclass(frozen=True)
class Target:
    """A device kind, its generation and the shape of the torus its chips form."""

    name: str
    topology: str
    dims: tuple[int, ...]
    options: dict[str, str]
    environment: dict[str, str]

    @property
    def devices(self) -> int:
        """How many devices the topology has: one a chip."""
        return math.prod(self.dims)


def parse_target(name: str) -> Target:
    """The target that `name` stands for, such as "tpu:v5e:2x4"."""
    known = ", ".join(f"tpu:{generation}:{example}" for generation, (example, _) in _TPU.items())
    kind, _, rest = name.partition(":")
    generation, _, shape = rest.partition(":")
    if kind != "tpu" or generation not in _TPU or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)+", shape):
        raise ValueError(
            f"target {name!r}: expected kind:generation:topology, such as {known} "
            "(the topology may be any that the generation comes in)"
        )
    return Target(
        name=name,
        topology=f"{generation}:{shape}",
        dims=tuple(int(dim) for dim in shape.split("x")),
        options=_TPU[generation][1],
        environment={**_TPU_ENVIRONMENT, "TPU_ACCELERATOR_TYPE": "v5e-8"},
    )


def find_library(target: Target) -> Path:
    """The PJRT plugin that compiles for `target`; found, not imported: importing it has effects."""
    chosen = os.environ.get("TPU_LIBRARY_PATH")
    if chosen and Path(chosen).is_file():
        return Path(chosen)
    spec = importlib.util.find_spec("libtpu")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (library := Path(folder, "libtpu.so")).is_file():
            return library
    raise CompilerMissing(
        f"compiling for {target.name!r} needs the package libtpu, which is not installed: "
        "pip install 'torch_xla_cc[aot]'"
    )
