"""Target strings, "kind:generation:topology": what to compile for, with no such device at hand."""

from __future__ import annotations

import importlib.util
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .._runtime.versions import how_to_install
from .errors import CompilerMissing
from .gpus import GPUS, target_config

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
    "TPU_ACCELERATOR_TYPE": "v5e-8",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
}

_PARTITIONED = "spmd:"
_SIZES = r"[1-9]\d*(?:x[1-9]\d*)+"
_TPU_NAME = re.compile(rf"tpu:(?P<generation>\w+):(?P<shape>{_SIZES})")
_GPU_NAME = re.compile(r"gpu:(?P<generation>\w+?)x(?P<count>[1-9]\d*)")


@dataclass(frozen=True)
class Plugin:
    """Where a compiler comes from."""

    package: str  # to import
    library: str  # the file in it
    extra: str  # of torch_xla_cc, which installs it
    variable: str  # of the environment, that names another file
    # Gives no optimised program through its interface, but writes it into the folder of
    # --xla_dump_to; states no costs at all.
    dumps: bool = False


_LIBTPU = Plugin("libtpu", "libtpu.so", "aot", "TPU_LIBRARY_PATH")
_CUDA = Plugin(
    "jax_plugins.xla_cuda12", "xla_cuda_plugin.so", "aot-gpu", "XLA_CUDA_PLUGIN_PATH", dumps=True
)


@dataclass(frozen=True)
class Target:
    """A device kind, its generation and the shape of the torus its chips form."""

    name: str
    topology: str
    dims: tuple[int, ...]
    options: dict[str, str]
    environment: dict[str, str]
    plugin: Plugin
    partitioned: bool = False  # ranks are partitions of one program, and not its replicas

    @property
    def devices(self) -> int:
        """How many devices the topology has: one a chip."""
        return math.prod(self.dims)


def parse_target(name: str) -> Target:
    """The target that `name` stands for: "tpu:v5e:2x4", "gpu:h100x8", "spmd:tpu:v5e:2x4"."""
    device = name.removeprefix(_PARTITIONED)
    partitioned = device != name
    tpu = _TPU_NAME.fullmatch(device)
    if tpu and tpu["generation"] in _TPU:
        return Target(
            name=name,
            topology=f"{tpu['generation']}:{tpu['shape']}",
            dims=tuple(int(dim) for dim in tpu["shape"].split("x")),
            options=_TPU[tpu["generation"]][1],
            environment=_TPU_ENVIRONMENT,
            plugin=_LIBTPU,
            partitioned=partitioned,
        )
    gpu = _GPU_NAME.fullmatch(device)
    if gpu and gpu["generation"] in GPUS:
        return Target(
            name=name,
            topology=gpu["generation"],
            dims=(int(gpu["count"]),),
            options={
                "target_config": target_config(GPUS[gpu["generation"]]),
                "topology": f"1x1x{gpu['count']}",  # slices, hosts of a slice, GPUs of a host
            },
            # Autotuning would run kernels.
            environment={"XLA_FLAGS": "--xla_gpu_autotune_level=0"},
            plugin=_CUDA,
            partitioned=partitioned,
        )
    raise ValueError(
        f"target {name!r}: expected kind:generation:topology, such as {', '.join(examples())} "
        "(the topology may be any that the generation comes in), or 'spmd:' and that"
    )


def examples() -> list[str]:
    """A target of each generation."""
    tpus = [f"tpu:{generation}:{example}" for generation, (example, _) in _TPU.items()]
    return tpus + [f"gpu:{generation}x8" for generation in GPUS]


def find_library(target: Target) -> Path:
    """The PJRT plugin that compiles for `target`; found, not imported: importing it has effects."""
    plugin = target.plugin
    chosen = os.environ.get(plugin.variable)
    if chosen and Path(chosen).is_file():
        return Path(chosen)
    for folder in _folders(plugin.package):
        if (library := Path(folder, plugin.library)).is_file():
            return library
    name = plugin.package.rpartition(".")[2]
    raise CompilerMissing(
        f"compiling for {target.name!r} needs the package {name}, which is not installed: "
        f"{how_to_install(plugin.extra)}"
    )


def _folders(package: str) -> list[str]:
    parent, _, name = package.rpartition(".")
    try:
        spec = importlib.util.find_spec(parent or name)
    except (ImportError, ValueError):
        return []
    folders = list((spec and spec.submodule_search_locations) or ())
    return [str(Path(folder, name)) for folder in folders] if parent else folders
