#!/usr/bin/env bash
# Creates a virtual environment and installs what pyproject.toml asks for: requirements to build and
# to run, and those of the extras that are named. Not the package itself: several clones may share
# one environment.
#
# Usage: tools/setup_venv.sh VENV VERSION PYTHON SET...
# A SET is an extra of pyproject.toml, or "run": what is needed in any case. When it is installed, the
# file VENV/.torch_xla_cc.SET.VERSION is written: VERSION says of which pyproject.toml.
set -euo pipefail

venv=$1
version=$2
python=$3
shift 3

# Another clone, or another CI run, may be at the same work.
mkdir -p "$venv"
exec 9>"$venv/.lock"
if ! flock --nonblock 9; then
  echo "Waiting for another set-up of $venv"
  flock 9
fi
sets=()
for name in $(printf '%s\n' run "$@" | sort --unique); do
  [[ -e $venv/.torch_xla_cc.$name.$version ]] || sets+=("$name")
done
if ((${#sets[@]} == 0)); then
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

mapfile -t requirements < <("$venv/bin/python" - "${sets[@]}" <<'PYTHON'
import re
import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    settings = tomllib.load(file)
project = settings["project"]
print(*settings["build-system"]["requires"], *project["dependencies"], sep="\n")
names = [name for name in sys.argv[1:] if name != "run"]
for name in names:
    for requirement in project["optional-dependencies"][name]:
        included = re.fullmatch(re.escape(project["name"]) + r"\[(.*)\]", requirement)
        if included:  # other extras, by name
            names += [other for other in included[1].split(",") if other not in names]
        else:
            print(requirement)
PYTHON
)

echo "Installing into $venv for: ${sets[*]} (the first time some GB, most of it with torch)"
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

for name in "${sets[@]}"; do
  rm -f "$venv/.torch_xla_cc.$name".*
  touch "$venv/.torch_xla_cc.$name.$version"
done
