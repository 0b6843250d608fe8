"""The versions that belong together, and the check of them at import.

The extension is built for one ABI of torch and speaks to one private binding of torch_xla, so any
other pair could crash; it is refused here, before anything native is loaded.
"""

from __future__ import annotations

import sys
import warnings
from importlib import metadata

TORCH = "2.9.0"
TORCH_XLA = "2.9.0"
JAXLIB = "0.7.1"  # that runs the programs of a pod
# What compiles for devices that are not here.
AHEAD_OF_TIME = {"libtpu": "0.0.21", "jaxlib": JAXLIB, "jax-cuda12-pjrt": "0.7.1"}
# The minor versions of Python 3, first and last, that packages of an extra are made for.
_PYTHONS = {"aot": (11, 12), "pod": (11, 13)}
# What the adapters change parts of that are not promised to stay. Another version is warned about:
# it may do, and what it lacks is an error.
MADE_FOR = {
    "accelerate": "1.15.0",
    "deepspeed": "0.19.8",
    "megatron-core": "0.16.1",
    "transformers": "5.23.0",
}
_warned: set[str] = set()


class UnsupportedVersion(ImportError):
    """Something is installed in a version that this release does not support."""


def installed(package: str) -> str | None:
    """The installed version of a package, None if it is missing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def how_to_install(extra: str) -> str:
    """What brings the packages of an extra of pyproject.toml, such as the compilers of TPU."""
    command = f"pip install 'torch_xla_cc[{extra}]', or in a clone: make compilers"
    this = sys.version_info.minor
    first, last = _PYTHONS.get(extra, (this, this))
    if first <= this <= last:
        return command
    return (
        f"its packages are for Python 3.{first} to 3.{last}, and this is 3.{this}. With one of "
        f"those: {command}"
    )


def problems() -> list[str]:
    """What is wrong with the installed pair; empty if nothing is."""
    found = []
    for package, wanted in (("torch", TORCH), ("torch_xla", TORCH_XLA)):
        version = installed(package)
        if version is None:
            found.append(f"{package} is not installed")
        elif version.partition("+")[0] != wanted:
            found.append(f"{package} {version} is installed")
    return found


def check() -> None:
    """Raise UnsupportedVersion unless the supported pair is installed."""
    wrong = problems()
    if wrong:
        raise UnsupportedVersion(
            f"torch_xla_cc works with torch {TORCH} and torch_xla {TORCH_XLA}, but "
            f"{' and '.join(wrong)}. Run: pip install torch=={TORCH} torch_xla=={TORCH_XLA}"
        )


def of(packages: tuple[str, ...]) -> str:
    """What a change was made for, what is there, and what to do."""
    wanted = {"torch": TORCH, "torch_xla": TORCH_XLA} | {name: MADE_FOR[name] for name in packages}
    others = {name: version for name, version in wanted.items() if _base(name) != version}
    if not others:
        return "Something else has changed it: undo that, or install this one first"
    made = " and ".join(f"{name} {version}" for name, version in wanted.items())
    there = " and ".join(f"{name} {installed(name)}" for name in others)
    fix = " ".join(f"{name}=={version}" for name, version in others.items())
    return f"It was made for {made}, and there is {there}. Run: pip install {fix}"


def warn_of_others(owner: str, packages: tuple[str, ...]) -> None:
    """Warn, once, of packages in another version than the one that `owner` was made for."""
    for name in packages:
        if installed(name) not in (None, MADE_FOR[name]) and name not in _warned:
            _warned.add(name)
            warnings.warn(
                f"{owner} was made for {name} {MADE_FOR[name]}, and there is {name} "
                f"{installed(name)}. It may work; if it does not: "
                f"pip install {name}=={MADE_FOR[name]}",
                RuntimeWarning,
                stacklevel=2,
            )


def _base(package: str) -> str:
    return (installed(package) or "none").partition("+")[0]
