"""The versions that belong together, and the check of them at import.

The extension is built for one ABI of torch and speaks to one private binding of torch_xla, so any
other pair could crash; it is refused here, before anything native is loaded.
"""

from __future__ import annotations

from importlib import metadata

TORCH = "2.9.0"
TORCH_XLA = "2.9.0"


class UnsupportedVersion(ImportError):
    """The installed torch or torch_xla is not the one that this release supports."""


def installed(package: str) -> str | None:
    """The installed version of a package, None if it is missing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


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
