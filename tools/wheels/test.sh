#!/usr/bin/env bash
# Installs a wheel from dist/ with pip into a fresh environment, in a fresh Debian or Ubuntu
# (tools/wheels/root.sh), and uses it there. As root.
#
# Usage: tools/wheels/test.sh ROOT VERSION [NVIDIA]
# NVIDIA: a site-packages with the CUDA libraries that torch requires. They are the same for all
# Pythons; without it pip downloads them (2.7 GB) for each.
set -euo pipefail

root=$(realpath "$1")
version=$2
nvidia=${3:-}
source=$(realpath "$(dirname "$0")/../..")
export root version nvidia source

# shellcheck disable=SC2016
# What is mounted in here goes when this ends, however it does.
unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
  cd "$root"
  mkdir -p source nvidia cache sys
  mount -t proc proc proc
  mount --rbind /dev dev
  mount --bind -o ro /sys sys # libtpu counts the CPUs in it
  mount --bind -o ro "$source" source
  mount --bind "${PIP_CACHE_DIR:-$(mkdir -p ~/.cache/pip && echo ~/.cache/pip)}" cache
  mount -t tmpfs none nvidia
  for folder in "$nvidia"/nvidia "$nvidia"/nvidia_*.dist-info; do
    if [[ -d $folder ]]; then
      mkdir "nvidia/${folder##*/}"
      mount --bind -o ro "$folder" "nvidia/${folder##*/}"
    fi
  done
  cp /etc/resolv.conf /etc/hosts etc/
  cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/ca-certificates.crt
  proxies=()
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL; do
    if [[ -v $name ]]; then proxies+=("$name=${!name}"); fi
  done
  exec env -i "${proxies[@]}" PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 \
    PIP_CACHE_DIR=/cache PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    chroot . bash /source/tools/wheels/in_root.sh "$version"
'
