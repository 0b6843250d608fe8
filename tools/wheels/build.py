"""Builds wheels for versions of Python other than the one that runs this.

    python tools/wheels/build.py 3.10 3.11 3.12 3.13

torch's headers are the same for all versions, and a module of Python is linked with none of it, so
what differs is Python.h, which build/wheels/roots has (tools/wheels/root.sh), and names. The
compiler is tools/wheels/c++. auditwheel then says which glibc and libstdc++ a wheel needs, and
names it so: dist/torch_xla_cc-VERSION-cp310-cp310-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "wheels"
DIST = ROOT / "dist"
PLATFORM = "manylinux_2_28_x86_64"  # as torch 2.9.0 and torch_xla 2.9.0
# Those are torch's, and of the same ABI by the requirement torch==2.9.0.
OF_TORCH = ("libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so")


def headers(version: str) -> Path:
    """A folder with Python.h, taken out of the two in which Debian has it."""
    include = BUILD / "roots" / version / "usr" / "include"
    to = BUILD / "headers" / version
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(include / f"python{version}", to)
    shutil.copy(include / "x86_64-linux-gnu" / f"python{version}" / "pyconfig.h", to)
    return to


def compile_for(version: str) -> None:
    """Run setup.py's bdist_wheel, in a process where sysconfig describes that Python."""
    digits = version.replace(".", "")
    include = str(headers(version))
    variables = {
        "EXT_SUFFIX": f".cpython-{digits}-x86_64-linux-gnu.so",
        "SOABI": f"cpython-{digits}-x86_64-linux-gnu",
    }
    sysconfig.get_config_vars().update(variables)  # the dict itself

    from setuptools._distutils import sysconfig as of_distutils
    from setuptools.command.bdist_wheel import bdist_wheel

    def get_tag(self: object) -> tuple[str, str, str]:
        return f"cp{digits}", f"cp{digits}", "linux_x86_64"

    def get_python_inc(*args: object, **kwargs: object) -> str:
        return include

    bdist_wheel.get_tag = get_tag
    of_distutils.get_python_inc = get_python_inc
    of_paths = sysconfig.get_path

    def get_path(name: str, *args: object, **kwargs: object) -> str:
        return include if name in ("include", "platinclude") else of_paths(name, *args, **kwargs)

    sysconfig.get_path = get_path

    folder = BUILD / version
    for name in ("lib", "wheel"):
        shutil.rmtree(folder / name, ignore_errors=True)
    sys.argv = [
        "setup.py",
        *("build", f"--build-lib={folder / 'lib'}", f"--build-temp={folder / 'objects'}"),
        *("egg_info", f"--egg-base={folder}"),
        *("bdist_wheel", f"--dist-dir={folder / 'wheel'}", f"--bdist-dir={folder / 'unpacked'}"),
    ]
    exec(compile((ROOT / "setup.py").read_text(), str(ROOT / "setup.py"), "exec"),
         {"__name__": "__main__", "__file__": str(ROOT / "setup.py")})  # fmt: skip


def build(version: str) -> None:
    """One wheel, in dist/."""
    began = time.monotonic()
    folder = BUILD / version
    folder.mkdir(parents=True, exist_ok=True)
    compiler = str(ROOT / "tools" / "wheels" / "c++")
    log = folder / "build.log"
    with log.open("wb") as output:
        done = subprocess.run(
            [sys.executable, __file__, "--here", version],
            cwd=ROOT,
            env={
                **os.environ,
                **{"CC": compiler, "CXX": compiler, "LDSHARED": f"{compiler} -shared"},
                **{"LDCXXSHARED": f"{compiler} -shared", "SOURCE_DATE_EPOCH": last_commit()},
                **{"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"},
            },
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    if done.returncode:
        sys.stderr.write(log.read_text(errors="replace")[-8000:])
        raise SystemExit(done.returncode)
    (wheel,) = (folder / "wheel").glob("*.whl")
    for old in DIST.glob(f"{wheel.name.rpartition('-')[0]}-*.whl"):
        old.unlink()
    audit = [sys.executable, "-m", "auditwheel", "repair", f"--plat={PLATFORM}"]
    audit += [f"--wheel-dir={DIST}", *(f"--exclude={name}" for name in OF_TORCH), str(wheel)]
    subprocess.run(audit, check=True, stdout=subprocess.DEVNULL)
    (made,) = DIST.glob(f"{wheel.name.rpartition('-')[0]}-*.whl")
    size = made.stat().st_size / 1e6
    print(f"{made.name}  {size:.1f} MB, {time.monotonic() - began:.0f} s", flush=True)


def last_commit() -> str:
    """When it was, so that a wheel built twice is the same."""
    command = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "315532800"  # 1980, where zip files begin: of an unpacked sdist


if __name__ == "__main__":
    if sys.argv[1] == "--here":
        compile_for(sys.argv[2])
    else:
        for version in sys.argv[1:]:
            build(version)
