#!/usr/bin/env bash
# Installs the Debian packages that are missing for a purpose: "build" (the extension, and running
# it), "lint", "test" or "wheels". Where it may not install, it says which command to run.
#
# Usage: tools/debian_packages.sh PYTHON PURPOSE...
set -euo pipefail

python=$1
shift
missing=()

# need PACKAGE COMMAND...: PACKAGE is missing if COMMAND fails.
need() {
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}

for purpose in "$@"; do
  case $purpose in
    build)
      need g++ command -v g++
      # Only Debian's own Python comes in parts.
      need python3-venv "$python" -c 'import ensurepip'
      need python3-dev "$python" -c \
        'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
      ;;
    lint)
      need shellcheck command -v shellcheck
      ;;
    test)
      need bazel-bootstrap command -v bazel-4
      need ccache command -v ccache
      need libgtest-dev test -e /usr/include/gtest/gtest.h
      need chromium command -v chromium
      need libopenmpi-dev command -v mpicxx.openmpi
      need openmpi-bin command -v mpirun.openmpi
      need libmpich-dev command -v mpicxx.mpich
      need mpich command -v mpirun.mpich
      ;;
    wheels)
      need g++ command -v g++
      need curl command -v curl
      need mmdebstrap command -v mmdebstrap
      ;;
    *)
      echo "$0: no such purpose: $purpose" >&2
      exit 2
      ;;
  esac
done

if ((${#missing[@]} == 0)); then
  exit 0
fi

install=(apt-get install --yes --no-install-recommends "${missing[@]}")
as_root=()
if ((EUID != 0)); then
  as_root=(sudo --non-interactive)
fi
if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
  echo "Missing (names of Debian packages): ${missing[*]}. As root, run:" >&2
  echo "  apt-get update && ${install[*]}" >&2
  exit 1
fi

echo "Installing Debian packages: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update &&
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "apt-get failed (above). Run it yourself as root: ${install[*]}" >&2
  exit 1
fi
