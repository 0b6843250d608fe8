#!/usr/bin/env bash
# Creates a virtual environment and installs what pyproject.toml asks for: requirements to build,
# to run, and all extras. Not the package itself: several clones may share one environment.
#
# Usage: tools/setup_venv.sh VENV STAMP [PYTHON]
# STAMP, a file in VENV, is written when all is done; its name says for which pyproject.toml.
set -euo pipefail

venv=$1
stamp=$2
python=${3:-python3}

# Another clone, or another CI run, may be at the same work.
mkdir -p "$venv"
exec 9>"$venv/.lock"
if ! flock --nonblock 9; then
  echo "Waiting for another set-up of $venv"
  flock 9
fi
if [[ -e $stamp ]]; then
  exit 0
fi

if [[ ! -x $venv/bin/pip ]]; then
  # jax 0.7.1 starts at 3.11, libtpu 0.0.21 ends at 3.12.
  if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))'; then
    echo "Development needs Python 3.11 or 3.12, but $python is $("$python" --version 2>&1)." >&2
    echo "Run: make PYTHON=/path/to/python3.11" >&2
    exit 1
  fi
  echo "Creating $venv"
  "$python" -m venv "$venv"
fi

mapfile -t requirements < <("$venv/bin/python" - <<'PYTHON'
import tomllib

with open("pyproject.toml", "rb") as file:
    settings = tomllib.load(file)
project = settings["project"]
lists = [settings["build-system"]["requires"], project["dependencies"]]
lists += project["optional-dependencies"].values()
for requirement in (line for lines in lists for line in lines):
    if not requirement.startswith(project["name"] + "["):  # one extra that includes another
        print(requirement)
PYTHON
)

echo "Installing ${#requirements[@]} requirements and what they need, the first time some 8 GB:"
log=$venv/setup.log
# Of pip's output only the large files are shown, as "torch 2.9.0 (899.7 MB)", and the last step.
progress='s/^ *(Downloading|Using cached) ([^-]+)-([^-]+)-.*\.whl.* (\([0-9]{2,}[0-9.]* MB\)).*/  \2 \3 \4/p
  s/^Installing collected packages.*/  unpacking/p'
if ! "$venv/bin/pip" install --disable-pip-version-check --progress-bar off \
  "${requirements[@]}" 2>&1 | tee "$log" | sed --unbuffered --quiet --regexp-extended "$progress"; then
  tail -n 20 "$log" >&2
  echo "pip failed (above; all of it in $log). Another try goes on from here." >&2
  exit 1
fi

rm -f "${stamp%.*}".*
touch "$stamp"
