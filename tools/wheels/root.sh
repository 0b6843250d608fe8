#!/usr/bin/env bash
# Makes a small root directory of the Debian or Ubuntu that has a version of Python: its headers are
# what a wheel is compiled with, and `chroot` there is where the wheel is tested. As root.
#
# Usage: tools/wheels/root.sh ROOT VERSION
set -euo pipefail

root=$1
version=$2
ubuntu=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
debian=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
keyring="ubuntu-keyring_2021.03.26_all.deb"
keyring_sha256=0d0e7ed6b112f5d03eabf3c7eb01ebdacf9c57714b279e90495cfc58c8c4520f

if [[ -e $root.complete ]]; then
  exit 0
fi
if ((EUID != 0)) || ! command -v mmdebstrap >/dev/null; then
  echo "$0 needs root, and mmdebstrap: apt-get install mmdebstrap" >&2
  exit 1
fi

mkdir -p "$(dirname "$root")"
rm -rf "$root"
case $version in
  3.10) suite=jammy ;;
  3.11) suite=bookworm ;;
  3.12) suite=noble ;;
  3.13) suite=trixie ;;
  *)
    echo "$0: no Debian or Ubuntu is known here for Python $version" >&2
    exit 2
    ;;
esac
echo "Making $root: $suite, for Python $version"
sources=("$debian")
if [[ $suite == jammy || $suite == noble ]]; then
  keys=$(realpath "$(dirname "$root")")/ubuntu-keyring
  if [[ ! -d $keys ]]; then
    curl --fail --silent --show-error --max-time 60 --retry 3 --output "$root.$keyring" \
      "$ubuntu/pool/main/u/ubuntu-keyring/$keyring"
    echo "$keyring_sha256  $root.$keyring" | sha256sum --check --quiet
    dpkg-deb --extract "$root.$keyring" "$keys"
    rm "$root.$keyring"
  fi
  signed="signed-by=$keys/usr/share/keyrings/ubuntu-archive-keyring.gpg"
  sources=()
  for pocket in "$suite" "$suite-updates"; do
    sources+=("deb [$signed] $ubuntu $pocket main universe")
  done
fi
mmdebstrap --quiet --variant=minbase --mode=root \
  --include="python$version-venv,libpython$version-dev,libstdc++6,ca-certificates" \
  --aptopt='APT::Install-Recommends "false"' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  "$suite" "$root" "${sources[@]}"
touch "$root.complete"
