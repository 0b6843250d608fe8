"""Stand-ins for CUDA libraries that torch's wheel links and torch_xla never calls.

torch 2.9.0 of PyPI is linked to libtorch_cuda (1 GB) and to CUDA 12. These shared libraries define
what the rest of torch wants of them: functions of the CUDA runtime that return "no device", others
that end the process with their name, and data of zeros. So `torch.cuda.is_available()` is False.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

_NO_DEVICE = 100  # cudaErrorNoDevice
_HEAD = """
#include <stdio.h>
#include <stdlib.h>
#define DEAD(name) void name(void) { fprintf(stderr, "stub called: %s\\n", #name); abort(); }
#define PLACE(name) void *name(void) { static char place[4096]; return place; }
extern char _ZTVN10__cxxabiv117__class_type_infoE[];
#define TYPE(name, text) \\
  struct { void *table; const char *text_; } name = { \\
    _ZTVN10__cxxabiv117__class_type_infoE + 16, text };
#define NONE(name) int name(void) { return """
# Each library, and what an unknown function in it does.
LIBRARIES = {
    "libtorch_cuda.so": "DEAD",
    "libcudart.so.12": "NONE",
    "libcupti.so.12": "NONE",
    "libcudnn.so.9": "DEAD",
    "libcusparseLt.so.0": "DEAD",
    "libcufile.so.0": "DEAD",
}
# Functions that are called at load, for a place to write to.
_PLACES = {"_ZN4c10d15get_gil_checkerEv"}
_DATA_KINDS = "VBDR"  # of nm
# Libraries of the system, some of whose functions are in libtorch_cuda as well.
_SYSTEM = [Path("/lib/x86_64-linux-gnu", name) for name in ("libstdc++.so.6", "libgcc_s.so.1")]


def _symbols(library: Path, which: str) -> dict[str, str]:
    """Names of dynamic symbols without their versions, and nm's letter for each."""
    command = ["nm", "-D", f"--{which}-only", str(library)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {parts[-1].partition("@")[0]: parts[-2] for parts in map(str.split, lines)}


def make(users: Sequence[Path], originals: Iterable[Path], folder: Path) -> None:
    """Write a stub of each original into `folder`, with what `users` take from it."""
    wanted, had = set[str](), set[str]()
    for user in users:
        wanted |= _symbols(user, "undefined").keys()
    for library in (*users, *_SYSTEM):
        had |= _symbols(library, "defined").keys()
    folder.mkdir(parents=True, exist_ok=True)
    for original in originals:
        defined = _symbols(original, "defined")
        for part in original.parent.glob("libtorch_nvshmem.so"):  # comes with libtorch_cuda
            defined |= _symbols(part, "defined")
        code = [f"{_HEAD}{_NO_DEVICE}; }}"]
        for name in sorted((wanted - had) & defined.keys()):
            if name.startswith("_ZTI"):
                code.append(f'TYPE({name}, "{name[4:]}")')
            elif defined[name].upper() in _DATA_KINDS:
                code.append(f"char {name}[4096] __attribute__((aligned(16)));")
            elif name in _PLACES:
                code.append(f"PLACE({name})")
            else:
                code.append(f"{LIBRARIES[original.name]}({name})")
        source = folder / f"{original.name}.c"
        source.write_text("\n".join(code) + "\n")
        versions = folder / f"{original.name}.map"
        versions.write_text(f"{original.name} {{ global: *; }};\n")
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{original.name}"]
        if original.name.startswith("libcu"):
            command.append(f"-Wl,--version-script={versions}")
        subprocess.run(
            [*command, "-o", str(folder / original.name), str(source), "-lstdc++"],
            check=True,
            timeout=60,
        )
