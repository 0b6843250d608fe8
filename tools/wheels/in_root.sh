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

# The pod needs jaxlib 0.7.1, which begins at 3.11.
extra='[pod]'
if [[ $version == 3.10 ]]; then
  extra=
fi
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

echo "== the first program of README.md"
/venv/bin/python - <<'PYTHON'
import re
from pathlib import Path

text = Path("/source/README.md").read_text()
program = re.search(r"<!-- file: first.py -->\n```python\n(.*?)```", text, re.S)
prints = re.search(r"<!-- prints, in any order -->\n```text\n(.*?)```", text, re.S)
Path("first.py").write_text(program[1])
Path("first.txt").write_text(prints[1])
PYTHON
PJRT_DEVICE=CPU CPU_NUM_DEVICES=4 /venv/bin/python first.py >said.txt
diff <(sort said.txt) <(sort first.txt)
cat said.txt

if [[ -n $extra ]]; then
  echo "== the pod, under torchrun"
  cat >pod.py <<'PYTHON'
import torch
import torch.distributed as dist
import torch_xla_cc.distributed

dist.init_process_group("xla_cc")
x = torch.full((3,), float(dist.get_rank() + 1), device="xla")
dist.all_reduce(x)
print(dist.get_rank(), x.tolist(), flush=True)
PYTHON
  PJRT_DEVICE=POD /venv/bin/torchrun --standalone --nproc-per-node=2 pod.py >pod.txt 2>pod.log ||
    { cat pod.log && exit 1; }
  # gloo speaks as well, on standard output.
  grep '^[01] ' pod.txt
  cmp <(grep '^[01] ' pod.txt | sort) <(printf '%s\n' '0 [3.0, 3.0, 3.0]' '1 [3.0, 3.0, 3.0]')
fi

echo "== a fast part of the tests"
began=$SECONDS
# In versions that this Python still has, hence without the pins of pyproject.toml, but for jax.
jax=jax==0.7.1
if [[ $version == 3.10 ]]; then
  jax=jax
fi
/venv/bin/pip install --quiet --progress-bar off absl-py expecttest hypothesis pytest pytest-timeout \
  pytest-xdist "$jax" ml_dtypes
mkdir tree
cp -r /source/{tests,pyproject.toml,README.md,docs,examples,lowering} tree/
cd tree
files=("${tests[@]/#/tests/python/}")
files=("${files[@]/%/.py}")
PJRT_DEVICE=CPU PYTHONPATH='' timeout 1500 /venv/bin/python -m pytest -q -m quick -n 2 \
  --dist loadfile -p no:cacheprovider "${files[@]}" >tests.log 2>&1 || { tail -n 60 tests.log && exit 1; }
tail -n 3 tests.log
echo "$((SECONDS - began)) s"
cd /
rm -rf /venv /try
