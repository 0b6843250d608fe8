"""Builds the extension module torch_xla_cc._C. Everything else is in pyproject.toml."""

import os
import sys
from pathlib import Path

from setuptools import setup

TORCH_VERSION = "2.9.0"  # the ABI that the extension is built for; also pinned in pyproject.toml

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
DIRECTORIES = ("lowering", "torch_xla_cc")
EXPORTS = "torch_xla_cc/exports.map"


def files(*suffixes: str) -> list[str]:
    """Files of the C++ tree with these suffixes, as setuptools wants them: relative, '/'."""
    return sorted(
        path.relative_to(ROOT).as_posix()
        for directory in DIRECTORIES
        for path in (ROOT / directory).rglob("*")
        if path.suffix in suffixes
    )


# torch's headers need 1 to 2 GB per compiler: one job per core, not ninja's cores + 2.
os.environ.setdefault("MAX_JOBS", str(os.cpu_count() or 1))

setup(
    ext_modules=[
        CppExtension(
            name="torch_xla_cc._C",
            sources=files(".cc"),
            depends=[*files(".h", ".def", ".inc"), EXPORTS, "setup.py"],
            include_dirs=[str(ROOT)],
            extra_compile_args=[
                "-O2",
                "-g0",  # Python's own flags say -g: most of it would describe torch's headers
                "-std=c++17",
                "-Wall",
                "-fvisibility=hidden",
                "-fvisibility-inlines-hidden",
            ],
            extra_link_args=[f"-Wl,--version-script={ROOT / EXPORTS}"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
