"""Links a clone's own .venv to the clone, as `pip install --editable` would, but builds nothing.

    .venv/bin/python tools/link_clone.py

After it that Python finds the package in the clone, torch_xla finds the pod device, and `txcc` is
in .venv/bin. `pip uninstall torch_xla_cc` takes it away again. What pip has installed stays.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

import tomllib

CLONE = Path(__file__).parents[1]
OURS = "tools/link_clone.py\n"  # in the place of pip's name


def main() -> None:
    """Write what pip would."""
    project = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]
    name = project["name"]
    package = (CLONE / "python" / name / "__init__.py").read_text()
    version = re.search(r'^__version__ = "(.*)"$', package, re.M)[1]  # type: ignore[index]
    site = Path(sysconfig.get_path("purelib"))
    scripts = Path(sysconfig.get_path("scripts"))
    if CLONE not in site.parents:
        sys.exit(f"{sys.executable} is not of an environment in {CLONE}")
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    entry_points = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in names.items())
        for group, names in groups.items()
    )
    files = {site / f"{name}.pth": f"{CLONE / 'python'}\n"}
    for command, place in project["scripts"].items():
        module, function = place.split(":")
        program = f"#!{sys.executable}\nfrom {module} import {function}\n\n{function}()\n"
        files[scripts / command] = program
    information = site / f"{name}-{version}.dist-info"
    files |= {
        information / "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        information / "entry_points.txt": entry_points,
        information / "INSTALLER": OURS,
    }
    record = information / "RECORD"
    names = [*files, record]
    files[record] = "".join(f"{os.path.relpath(file, site)},,\n" for file in names)
    for old in site.glob(f"{name}-*.dist-info"):
        installer = old / "INSTALLER"
        if not installer.exists() or installer.read_text() != OURS:
            print(f"pip has installed {name} in {site}: that stays, and is not this clone")
            for command in project["scripts"]:
                (scripts / command).touch()  # for make
            return
        if old != information:
            shutil.rmtree(old)
    information.mkdir(exist_ok=True)
    for file, text in files.items():
        file.write_text(text)
        if file.parent == scripts:
            file.chmod(0o755)


if __name__ == "__main__":
    main()
