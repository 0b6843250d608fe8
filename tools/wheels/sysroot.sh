#!/usr/bin/env bash
# Unpacks what wheels are linked against, so that they run wherever torch's own do (manylinux_2_28):
# glibc 2.27 and libstdc++ of GCC 8 (Ubuntu 18.04), and the headers of libstdc++ 9 (Ubuntu 20.04),
# the oldest that torch's headers compile with. Nothing is installed. tools/wheels/c++ uses it.
#
# Usage: tools/wheels/sysroot.sh SYSROOT
set -euo pipefail

sysroot=$1
mirror=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
# Both are at their end of life: these files stay where they are.
packages=(
  5b813d4512491cd8fb30b2eb9192349ee75ffe3c9f21ae136cc7b2429f70c3b2 glibc/libc6_2.27-3ubuntu1.6
  96ae7d2cf38f0547ca3cccb3344c8802fdf5bcd71c4b6d9aed09558ac8cc87db glibc/libc6-dev_2.27-3ubuntu1.6
  06d9f16644d3a1b2ab7dd01730e833d516b6f575d975855f496eea6463fef2f6 linux/linux-libc-dev_4.15.0-213.224
  4dbd1ffa20011329608f584ff329a10507cfa78c3f76fa34e6f479f9680b64f4 gcc-8/libstdc++6_8.4.0-1ubuntu1~18.04
  e8c637e8f5a87f05b3f1dad0e020cc3763c384f5bb0fc159f69277645a2444df gcc-9/libstdc++-9-dev_9.4.0-1ubuntu1~20.04.2
)

if [[ -e $sysroot/complete ]]; then
  exit 0
fi
echo "Downloading glibc 2.27 and libstdc++ into $sysroot (8 MB)"
rm -rf "$sysroot"
mkdir -p "$sysroot"
for ((i = 0; i < ${#packages[@]}; i += 2)); do
  source=${packages[i + 1]%%/*}
  file=${packages[i + 1]#*/}_amd64.deb
  curl --fail --silent --show-error --max-time 120 --retry 3 \
    --output "$sysroot/$file" "$mirror/pool/main/${source:0:1}/$source/$file"
  echo "${packages[i]}  $sysroot/$file" | sha256sum --check --quiet
  dpkg-deb --extract "$sysroot/$file" "$sysroot"
  rm "$sysroot/$file"
done
ln -s libstdc++.so.6 "$sysroot/usr/lib/x86_64-linux-gnu/libstdc++.so"
touch "$sysroot/complete"
