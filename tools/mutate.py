"""Shows what the tests are worth: breaks the package in one place after the other, and runs them.

    VENV=.venv python tools/mutate.py [--commit HEAD] [--in FOLDER] [--only NAME] [--list]

tools/mutations.py says what is replaced by what, and which tests should notice. A test that fails,
hangs or aborts has noticed. `--intact` runs these tests on what is not broken: all must pass.
FOLDER is a checkout that is kept; what was compiled there is in its build/mutants.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(os.environ.get("VENV", ROOT / ".venv")).resolve()
CPP = ("lowering", "torch_xla_cc")
EXTENSION = "python/torch_xla_cc/_C*.so"
BUILD_S, TEST_S = 1500, 240  # limits


def run(folder: Path, command: list[str], limit_s: float) -> tuple[int | None, str]:
    """Its exit status, none if it took too long, and what it printed."""
    env = {**os.environ, "PYTHONPATH": "python", "MAX_JOBS": os.environ.get("MAX_JOBS", "1")}
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=output, stderr=output, start_new_session=True
        )
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it has left running
            process.wait()
        output.seek(0)
        return status, output.read()


def git(folder: Path, *args: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *args], check=True, capture_output=True, text=True
    ).stdout


@contextlib.contextmanager
def checkout(commit: str, folder: Path | None) -> Iterator[Path]:
    """A worktree with that commit; one that is not given is removed in the end."""
    commit = git(ROOT, "rev-parse", f"{commit}^{{commit}}").strip()
    made = folder or Path(tempfile.mkdtemp(prefix="mutate")) / "checkout"
    if not made.exists():
        git(ROOT, "worktree", "add", "--detach", str(made), commit)
    elif git(made, "status", "--porcelain", "--untracked-files=no"):
        sys.exit(f"{made} has changes")
    git(made, "checkout", "--quiet", "--detach", commit)
    try:
        yield made.resolve()
    finally:
        if not folder:
            git(ROOT, "worktree", "remove", "--force", str(made))
            made.parent.rmdir()


def place(folder: Path, mutation: Mutation) -> Path:
    """The one file that has the text, once."""
    paths = [folder / name for name in git(folder, "ls-files", *CPP, "python").splitlines()]
    found = [(path, path.read_text(errors="replace").count(mutation.text)) for path in paths]
    places = [path for path, count in found if count]
    if sum(count for _, count in found) != 1:
        sys.exit(f"{mutation.name}: the text must be there once, and is in {places}")
    return places[0]


def sources_hash(folder: Path) -> str:
    hashed = hashlib.sha256()
    for name in ["setup.py", *sorted(git(folder, "ls-files", *CPP).splitlines())]:
        hashed.update(name.encode() + b"\0" + (folder / name).read_bytes() + b"\0")
    return hashed.hexdigest()[:16]


def build(folder: Path) -> str:
    """Put the extension in place, from build/mutants if it is there; what went wrong."""
    kept = folder / "build/mutants" / sources_hash(folder)
    if not kept.exists():
        status, output = run(folder, ["make", "build", f"VENV={VENV}"], BUILD_S)
        if status != 0:
            return output[-2000:] or "it took too long"
        kept.mkdir(parents=True)
        shutil.copy2(next(folder.glob(EXTENSION)), kept)
    for extension in folder.glob(EXTENSION):
        extension.unlink()  # and not overwritten: a process may still have it loaded
    for extension in kept.iterdir():
        shutil.copy2(extension, (folder / EXTENSION).parent)
    return ""


@contextlib.contextmanager
def broken(folder: Path, mutation: Mutation) -> Iterator[str]:
    """With the mutation in place, and compiled; what the compiler says against it."""
    path = place(folder, mutation)
    before, times = path.read_text(), path.stat()
    native = path.suffix != ".py"
    saved = folder / "build.intact"
    if native:
        shutil.copytree(folder / "build", saved, ignore=lambda *_: ["mutants"])
    try:
        path.write_text(before.replace(mutation.text, mutation.instead))
        yield build(folder) if native else ""
    finally:
        path.write_text(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        if native:
            shutil.copytree(saved, folder / "build", dirs_exist_ok=True)
            shutil.rmtree(saved)
            build(folder)


def caught(folder: Path, target: str) -> str:
    """What noticed; empty if nothing did."""
    if target.startswith("//"):
        command = ["bazel-4", "--batch", "test", "--test_output=errors", *shlex.split(target)]
    else:
        options = ["-x", "-q", "-rfE", "-p", "no:cacheprovider", "--timeout", str(TEST_S // 2)]
        command = [str(VENV / "bin/python"), "-m", "pytest", *options, *shlex.split(target)]
    status, output = run(folder, command, TEST_S if command[0] != "bazel-4" else BUILD_S)
    if status is None:
        return f"{target}: hangs"
    if status in (0, 5):  # 5: this commit has no such test
        return ""
    lines = re.findall(r"^(?:FAILED|ERROR) .*|.*\[  FAILED  \].*", output, re.M)
    if status > 1 and not lines and not target.startswith("//"):
        sys.exit(f"{target} cannot be run:\n{output[-3000:]}")
    return lines[-1] if lines else f"{target}: ended by {status}"


def report(name: str, found: str, seconds: float) -> None:
    print(f"{name:30} {seconds:5.0f} s  {found[:230]}", flush=True)


def intact(folder: Path, chosen: list[Mutation]) -> int:
    failed = 0
    for target in dict.fromkeys(target for mutation in chosen for target in mutation.targets):
        begin = time.monotonic()
        found = caught(folder, target)
        failed += bool(found)
        report("FAILS" if found else "passes", found or target, time.monotonic() - begin)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--in", dest="folder", type=Path)
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--intact", action="store_true")
    args = parser.parse_args()
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, lambda *_: sys.exit("stopped"))  # and what is broken is put back
    chosen = [one for one in MUTATIONS if not args.only or one.name in args.only]
    missed = 0
    with checkout(args.commit, args.folder) as folder:
        for one in chosen:
            place(folder, one)
        if args.list:
            print("\n".join(f"{one.name:30} {'; '.join(one.targets)}" for one in chosen))
            return 0
        if error := build(folder):
            sys.exit(error)
        if args.intact:
            return intact(folder, chosen)
        for one in chosen:
            begin = time.monotonic()
            with broken(folder, one) as error:
                found = f"the compiler: {error}" if error else ""
                for target in one.targets:
                    found = found or caught(folder, target)
            missed += not found
            report(one.name, found or "NOT caught", time.monotonic() - begin)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return missed


if __name__ == "__main__":
    sys.exit(main())
