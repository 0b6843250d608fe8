"""Builds the extension module torch_xla_cc._C and libpod.so. All else is in pyproject.toml."""

import os
import sys
from pathlib import Path

import setuptools
from setuptools import Extension, setup

SETUPTOOLS = 77  # the first that reads `license = "Apache-2.0"` in pyproject.toml
TORCH_VERSION = "2.9.0"  # the ABI that the extension is built for; also pinned in pyproject.toml

if int(setuptools.__version__.partition(".")[0]) < SETUPTOOLS:
    sys.exit(
        f"torch_xla_cc is built by setuptools {SETUPTOOLS} or later, but {sys.executable} has "
        f"{setuptools.__version__}.\nRun: {sys.executable} -m pip install "
        f"'setuptools>={SETUPTOOLS}'"
    )

try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ModuleNotFoundError as error:
    sys.exit(
        f"torch_xla_cc is built against torch {TORCH_VERSION}, but {sys.executable} lacks the "
        f"module {error.name!r}.\nRun: {sys.executable} -m pip install torch=={TORCH_VERSION}"
    )

if torch.__version__.partition("+")[0] != TORCH_VERSION:
    sys.exit(
        f"torch_xla_cc is built against torch {TORCH_VERSION}, but {sys.executable} has torch "
        f"{torch.__version__}.\nRun: {sys.executable} -m pip install torch=={TORCH_VERSION}"
    )

ROOT = Path(__file__).resolve().parent
MODULE, PLUGIN = ("lowering", "torch_xla_cc"), ("pod",)


def files(directories: tuple[str, ...], *suffixes: str) -> list[str]:
    """Files of C++ trees with these suffixes, as setuptools wants them: relative, '/'."""
    return sorted(
        path.relative_to(ROOT).as_posix()
        for directory in directories
        for path in (ROOT / directory).rglob("*")
        if path.suffix in suffixes
    )


# torch's headers need 1 to 2 GB per compiler: one job per core, not ninja's cores + 2.
os.environ.setdefault("MAX_JOBS", str(os.cpu_count() or 1))


def options(directories: tuple[str, ...], exports: str) -> dict[str, object]:
    """What is built of these trees, and how."""
    return {
        "sources": files(directories, ".cc"),
        "depends": [*files(directories, ".h", ".def", ".inc"), exports, "setup.py"],
        "include_dirs": [str(ROOT)],
        "extra_compile_args": [
            "-O2",
            "-g0",  # Python's own flags say -g: most of it would describe torch's headers
            "-std=c++17",
            "-Wall",
            "-fvisibility=hidden",
            "-fvisibility-inlines-hidden",
        ],
        "extra_link_args": [f"-Wl,--version-script={ROOT / exports}"],
    }


class Build(BuildExtension):
    """The plugin is no module of Python's, and is not named as one."""

    def get_ext_filename(self, fullname: str) -> str:
        if fullname.rpartition(".")[2] == "libpod":
            return os.path.join(*fullname.split(".")) + ".so"
        return super().get_ext_filename(fullname)


setup(
    ext_modules=[
        CppExtension(name="torch_xla_cc._C", **options(MODULE, "torch_xla_cc/exports.map")),
        Extension(name="torch_xla_cc.libpod", language="c++", **options(PLUGIN, "pod/exports.map")),
    ],
    cmdclass={"build_ext": Build},
)
