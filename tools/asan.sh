#!/usr/bin/env bash
# Builds the extension with the sanitizer of addresses into a folder beside the usual build, and runs
# random worlds of torch.distributed with it, or what is given: tools/asan.sh PYTHON [PROGRAM...].
# torch and torch_xla are not instrumented: of them it sees what goes through malloc and memcpy.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
shift
built=$PWD/build/asan
mkdir -p build

CPPFLAGS="-Werror -fsanitize=address -fno-omit-frame-pointer" \
  CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 PATH="/usr/lib/ccache:$(dirname "$python"):$PATH" \
  "$python" setup.py build_ext --build-lib "$built/python" --build-temp "$built/temp" \
  >"$built.log" 2>&1 || { cat "$built.log"; exit 1; }
find python/torch_xla_cc -name '*.py' -printf '%P\n' | while read -r file; do
  install -D "python/torch_xla_cc/$file" "$built/python/torch_xla_cc/$file"
done

# libstdc++ too: libasan looks up what throws before Python loads it.
runtime="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)"
run() {
  echo "with the sanitizer of addresses: $*"
  LD_PRELOAD=$runtime PYTHONPATH="$built/python:tests/harness:tests/distributed" \
    ASAN_OPTIONS=detect_leaks=0:detect_odr_violation=0:verify_asan_link_order=0 "$python" "$@"
}

if [ $# -gt 0 ]; then
  run "$@"
  exit
fi
for seed in 1 2 3; do
  run tests/distributed/test_random_worlds.py threads 3 "$seed"
  run tests/distributed/test_random_worlds.py processes 2 "$seed"
done
