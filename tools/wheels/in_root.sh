#!/usr/bin/env bash
# What tools/wheels/test.sh runs inside of the root: /source is the tree, read only, /nvidia what
# torch's CUDA libraries may be taken from.
#
# Usage: tools/wheels/in_root.sh VERSION
set -euo pipefail

version=$1
digits=${version/./}
# Those are of what is installed, not of the tree, and take a minute or two.
tests=(test_cache test_compare test_compile test_policy test_properties test_signatures test_values
  test_wire)

# shellcheck source=/dev/null
. /etc/os-release
echo "== Python $version on $PRETTY_NAME, $(ldd --version | sed -n '1s/.* //p')"
rm -rf /venv /try
"python$version" -m venv /venv
echo /nvidia >"$(/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia.pth"
mkdir /try
cd /try

# jaxlib 0.7.1, for the pod, begins at 3.11, and libtpu 0.0.21, the TPU's compiler, ends at 3.12.
declare -A extras=([3.11]='[aot,pod]' [3.12]='[aot,pod]' [3.13]='[pod]')
extra=${extras[$version]-}
wheel=$(echo /source/dist/torch_xla_cc-*-cp"$digits"-*.whl)
echo "== pip install ${wheel##*/}$extra"
began=$SECONDS
/venv/bin/pip install --quiet --progress-bar off "$wheel$extra"
/venv/bin/pip check
echo "$((SECONDS - began)) s; torch $(/venv/bin/python -c 'import torch; print(torch.__version__)')"

echo "== import, without a compiler or a source tree"
if command -v cc gcc c++ g++; then exit 1; fi
/venv/bin/python -c 'import torch_xla_cc; print(torch_xla_cc.__version__, torch_xla_cc.__file__)'

echo "== txcc doctor"
PJRT_DEVICE=CPU /venv/bin/txcc doctor

cp -r /source/{tests,pyproject.toml,README.md,docs,examples,lowering} .
run_tests() {
  timeout 1500 /venv/bin/python -m pytest -q -rs -n 2 --dist load -p no:cacheprovider "$@" >tests.log 2>&1 ||
    { tail -n 60 tests.log && exit 1; }
  grep -E '^SKIPPED|passed' tests.log
}
echo "== every command of README.md and the tutorial"
began=$SECONDS
# In versions that this Python still has, hence without the pins of pyproject.toml.
/venv/bin/pip install --quiet --progress-bar off absl-py expecttest hypothesis pytest pytest-timeout \
  pytest-xdist
run_tests tests/python/test_tutorial_pages.py
echo "$((SECONDS - began)) s"

echo "== a fast part of the tests"
began=$SECONDS
jax=jax==0.7.1
if [[ $version == 3.10 ]]; then
  jax=jax
fi
/venv/bin/pip install --quiet --progress-bar off "$jax" ml_dtypes
files=("${tests[@]/#/tests/python/}")
files=("${files[@]/%/.py}")
PJRT_DEVICE=CPU run_tests -m quick --dist loadfile "${files[@]}"
echo "$((SECONDS - began)) s"
cd /
rm -rf /venv /try
