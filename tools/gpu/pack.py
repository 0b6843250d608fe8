"""Packs this Python, torch, torch_xla and torch_xla_cc for a machine that has a GPU and no network.

    python tools/gpu/pack.py --out build/gpu --piece-mib 54

What is in the folder `tree` is what travels: run `tree/run script.py` to try it. The pieces,
joined, are a tar compressed by zstd; the program zstd is beside them. CUDA's libraries are not in
it (stubs.py), nor is a PJRT plugin: the machine has its own.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import stubs

_ROOT = Path(__file__).resolve().parents[2]
_SITE = Path(sysconfig.get_paths()["purelib"])
_PACKAGES = (
    "torch", "torch_xla", "functorch", "torchgen", "numpy", "numpy.libs", "absl", "yaml", "_yaml",
    "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "filelock", "fsspec", "packaging",
    "google", "ml_dtypes", "requests", "urllib3", "certifi", "idna", "charset_normalizer",
    "rich", "pygments", "markdown_it", "mdurl",
)  # fmt: skip
_METADATA = ("torch", "torch_xla", "numpy", "protobuf")
_NOT_PACKED = {
    "__pycache__", "test", "tests", "include", "share", "idlelib", "tkinter", "ensurepip",
    "lib2to3", "turtledemo", "site-packages", "bin",
}  # fmt: skip
_TORCH = (
    "libc10.so", "libc10_cuda.so", "libshm.so", "libtorch.so", "libtorch_global_deps.so",
    "libgomp.so.1", "libtorch_cpu.so", "libtorch_python.so",
)  # fmt: skip
_RUN = """#!/bin/sh
# Runs the Python of this folder, which finds nothing outside of it.
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONHOME="$here" PYTHONPATH="$here/site" PYTHONNOUSERSITE=1
# The stub of cuDNN comes last: the plugin takes the one that is loaded, and needs a real one.
LD_LIBRARY_PATH="$here/site/torch/lib:${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$here/last"
export LD_LIBRARY_PATH="$here/lib:$LD_LIBRARY_PATH"
exec "$here/bin/python3.11" "$@"
"""


# What Python's own modules want of the system, and may not be there.
_SYSTEM = ("libffi.so.8", "libz.so.1", "liblzma.so.5", "libbz2.so.1.0", "libcrypto.so.3")


def _ignored(folder: str, names: list[str]) -> set[str]:
    ignored = {name for name in names if name in _NOT_PACKED or name.endswith((".a", ".pyi"))}
    return ignored | {name for name in names if name.startswith("config-3")}


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=_ignored, dirs_exist_ok=True)


def _strip(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["strip", "--strip-unneeded", "-o", str(target), str(source.resolve())]
    subprocess.run(command, check=True)


def _libraries(site: Path) -> None:
    """Torch's own libraries, and stubs for those of CUDA."""
    lib = _SITE / "torch/lib"
    target = site / "torch/lib"
    shutil.rmtree(target)
    target.mkdir()
    for name in _TORCH[:6]:
        shutil.copy2(lib / name, target)
    for name in _TORCH[6:]:
        _strip(lib / name, target / name)
    originals = []
    for name in stubs.LIBRARIES:
        found = [lib / name] if (lib / name).is_file() else _SITE.glob(f"nvidia/*/lib/{name}")
        originals += list(found)[:1]
    made = target.parent / "stubs"
    stubs.make([lib / name for name in _TORCH if "gomp" not in name], originals, made)
    for name in stubs.LIBRARIES:
        place = site.parent / "last" if name.startswith("libcudnn") else target
        place.mkdir(exist_ok=True)
        shutil.move(made / name, place / name)
    shutil.rmtree(made)


def tree(folder: Path) -> None:
    """Make what travels."""
    shutil.rmtree(folder, ignore_errors=True)
    site = folder / "site"
    base = Path(sys.base_prefix)
    _copy(base / "lib/python3.11", folder / "lib/python3.11")
    (folder / "bin").mkdir()
    shutil.copy2(base / "bin/python3.11", folder / "bin")
    _strip(base / "lib/libpython3.11.so.1.0", folder / "lib/libpython3.11.so.1.0")
    for name in _SYSTEM:
        shutil.copy2(Path("/lib/x86_64-linux-gnu", name), folder / "lib")
    for name in _PACKAGES:
        if name == "torch":  # its libraries would be 1.6 GB
            shutil.copytree(
                _SITE / name,
                site / name,
                ignore=lambda at, names: (
                    _ignored(at, names) | ({*names} if at.endswith("torch/lib") else set())
                ),
            )
        else:
            _copy(_SITE / name, site / name)
    for name in _METADATA:
        for found in _SITE.glob(f"{name}-*.dist-info"):
            _copy(found, site / found.name)
    shutil.copy2(_SITE / "typing_extensions.py", site)
    (site / "torch/bin").mkdir()
    shutil.copy2(_SITE / "torch/bin/torch_shm_manager", site / "torch/bin")
    _libraries(site)
    for extension in _SITE.glob("_XLAC*.so"):
        _strip(extension, site / extension.name)
    _copy(_ROOT / "python/torch_xla_cc", site / "torch_xla_cc")
    for extension in (_ROOT / "python/torch_xla_cc").glob("_C*.so"):
        _strip(extension, site / "torch_xla_cc" / extension.name)
    shutil.copy2(Path(__file__).with_name("cuda_plugin.py"), site)
    metadata = site / "cuda_plugin-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: cuda_plugin\nVersion: 0\n")
    entry = "[torch_xla.plugins]\nCUDA = cuda_plugin:CudaPlugin\n"
    (metadata / "entry_points.txt").write_text(entry)
    (folder / "run").write_text(_RUN)
    (folder / "run").chmod(0o755)


def pieces(folder: Path, out: Path, mib: int) -> None:
    """Compress the tree, and cut it in files of at most `mib` MiB."""
    for old in out.glob("piece.*"):
        old.unlink()
    made = (
        f"tar -C {folder} -cf - . | zstd -q -T2 -10 --long=27 | split -d -b {mib}M - {out}/piece."
    )
    subprocess.run(["bash", "-o", "pipefail", "-c", made], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--piece-mib", type=int, default=54)
    args = parser.parse_args()
    tree(args.out / "tree")
    pieces(args.out / "tree", args.out, args.piece_mib)
    for piece in sorted(args.out.glob("piece.*")):
        print(piece, piece.stat().st_size)


if __name__ == "__main__":
    main()
