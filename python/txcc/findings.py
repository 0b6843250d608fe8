"""What `txcc doctor` looks at. The package, or what stands in for it, is imported before this."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

from torch_xla_cc._runtime import environment, private, versions
from txcc.package import StandIn


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report; `remedy` says what to do if it is not well."""

    subject: str
    found: str
    well: bool = True
    remedy: str = ""


def _packages() -> Iterator[Finding]:
    for package, wanted in (("torch", versions.TORCH), ("torch_xla", versions.TORCH_XLA)):
        version = versions.installed(package)
        well = version is not None and version.partition("+")[0] == wanted
        yield Finding(package, version or "missing", well, f"pip install {package}=={wanted}")
    version = versions.installed("protobuf")
    yield Finding("protobuf", version or "missing", version is not None, "pip install protobuf")


def _private_names() -> Iterator[Finding]:
    """Whether all is there that these versions do not promise to keep."""
    if versions.problems():
        return  # said above
    try:
        gone = list(private.missing())
    except (OSError, RuntimeError) as error:
        gone = [str(error)]
    yield Finding(
        "private names",
        f"missing: {', '.join(gone)}" if gone else "all there",
        not gone,
        f"pip install --force-reinstall torch=={versions.TORCH} torch_xla=={versions.TORCH_XLA}",
    )


def _extension() -> Iterator[Finding]:
    package = importlib.import_module("torch_xla_cc")
    if isinstance(package, StandIn):
        yield Finding("torch_xla_cc", package.problem, False, package.remedy)
        return
    yield Finding("torch_xla_cc", package.__version__)


def _runtime() -> Iterator[Finding]:
    """The device, without starting its runtime: that would take it from other processes."""
    kind = os.environ.get("PJRT_DEVICE")
    yield Finding("device kind", kind or "CPU (PJRT_DEVICE is not set)")
    try:
        environment.require_kind("launch")
    except ValueError as error:
        yield Finding(
            "environment", str(error), False, f"export PJRT_DEVICE={(kind or '').upper()}"
        )
    for name in environment.CHOICES:
        try:
            environment.choice(name)
        except ValueError as error:
            yield Finding("environment", str(error), False, f"unset {name}")
    if kind not in (None, "CPU", "TPU", "POD") and not _has_plugin(kind):
        named = f"PJRT_DEVICE = {kind!r}, and no plugin of torch_xla has that name"
        yield Finding("environment", named, False, "install its plugin, or unset PJRT_DEVICE")
    if kind not in (None, "CPU"):
        return
    numbers = {}
    for name, otherwise in (("CPU_NUM_DEVICES", 1), ("XLA_THREAD_POOL_SIZE", 0), ("WORLD_SIZE", 1)):
        try:
            numbers[name] = environment.number(name, otherwise)
        except ValueError as error:
            yield Finding("environment", str(error), False, f"unset {name}")
            numbers[name] = otherwise
    devices, pool, processes = numbers.values()
    pool = pool or (os.cpu_count() or 1)
    yield Finding(
        "CPU devices",
        f"{devices} (CPU_NUM_DEVICES; launch sets it to nprocs)",
        1 <= devices <= environment.MOST_CPU_DEVICES,
        f"set CPU_NUM_DEVICES to 1 to {environment.MOST_CPU_DEVICES}, or not at all",
    )
    yield Finding(
        "thread pool",
        f"{pool} thread(s) for {devices} device(s)",
        pool >= devices,
        f"start the ranks with torch_xla_cc.launch, or set XLA_THREAD_POOL_SIZE={devices}",
    )
    alone = ": torch.distributed alone; xm.* need torch_xla_cc.launch or the pod"
    yield Finding(
        "processes",
        f"{processes} (WORLD_SIZE){alone if processes > 1 else ''}",
    )


def _has_plugin(kind: str) -> bool:
    """Whether torch_xla finds one for this kind of device."""
    return any(
        plugin.name.upper() == kind.upper()
        for plugin in importlib.metadata.entry_points(group="torch_xla.plugins")
    )


def _pod() -> Iterator[Finding]:
    """What ranks of a pod need, if this is to be one: two of them are tried."""
    if os.environ.get("PJRT_DEVICE") != "POD":
        return
    library = Path(environment.__file__).parents[1] / "libpod.so"
    yield Finding("pod: plugin", str(library), library.exists(), "make build, or reinstall")
    plugins = importlib.metadata.entry_points(group="torch_xla.plugins")
    found = any(plugin.value.startswith("txcc_pod:") for plugin in plugins)
    how = "found by its entry point" if found else "not found: the package is not installed"
    remedy = "pip install it, or call txcc_pod.register() before the first use of a device"
    yield Finding("pod: entry point", how, found, remedy)
    version = versions.installed("jaxlib")
    well = version == versions.JAXLIB
    yield Finding("pod: jaxlib", version or "missing", well, versions.how_to_install("pod"))
    if well and not versions.problems():
        said = _sum_of_two()
        yield Finding("pod: a sum of two processes", said, said == "right", "what it says")


def _sum_of_two() -> str:
    """Whether two device processes start, meet and reduce."""
    from torch_xla_cc.capabilities import _grid, _pod

    cell = _grid.Cell("all_reduce", "f32", "sum", "world", "one")
    ((_, outcome),) = next(_pod.probe(_grid.Device("pod", 2, "pod"), [cell]))
    return "right" if outcome.result == "native" else f"{outcome.result}: {outcome.says}"


def _ahead_of_time() -> Iterator[Finding]:
    """What compiling for devices that are not here takes. Not having it is no fault."""
    for package, name, extra in (
        ("libtpu", "libtpu", "aot"),
        ("jaxlib", "jaxlib", "aot"),
        ("jax_plugins.xla_cuda12", "jax-cuda12-pjrt", "aot-gpu"),
    ):
        try:
            there = importlib.util.find_spec(package) is not None
        except ModuleNotFoundError:
            there = False
        version = versions.installed(name) if there else None
        if version and version != (wanted := versions.AHEAD_OF_TIME[name]):
            version += f"; txcc inspect is made for {wanted}"
        remedy = versions.how_to_install(extra)
        here = name == "libtpu" and os.environ.get("PJRT_DEVICE") == "TPU"
        missing = "missing" if here else f"missing: only for devices that are not here; {remedy}"
        yield Finding(name, version or missing, bool(version) or not here, remedy)


def _fallbacks() -> Iterator[Finding]:
    """What is no native instruction on this kind of device, for float32 and groups of the world."""
    try:
        from torch_xla_cc.capabilities import _grid, explain
    except ImportError:
        return  # said already
    kind = (os.environ.get("PJRT_DEVICE") or "CPU").lower()
    whys = {}
    for op in _grid.OPS:
        found = explain(op, kind)
        if found.rule != "native":
            whys[op] = found.why
    yield Finding("native here", ", ".join(op for op in _grid.OPS if op not in whys) or "nothing")
    for op, why in whys.items():
        yield Finding("falls back here", f"{op}: {why}")


def _python() -> Iterator[Finding]:
    yield Finding("python", platform.python_version())


# In the order of the report, with what is said while each is looked at.
CHECKS: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
    ("the version of Python", _python),
    ("packages", _packages),
    ("private names of torch and torch_xla", _private_names),
    ("the extension module", _extension),
    ("the runtime's settings", _runtime),
    ("the pod: two processes are tried", _pod),
    ("compilers of other devices", _ahead_of_time),
    ("what is native here", _fallbacks),
)
