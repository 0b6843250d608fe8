#!/usr/bin/env bash
# All that is asked of a machine with one NVIDIA GPU, in eleven minutes at most: docs/gpu.md says what came
# of it. Says what it would run; with --run it does.
#
# Usage: tools/gpu/all.sh [--run] [OUT]          (OUT: build/gpu-results)
# PYTHON: one with torch_xla_cc's requirements and the extra aot-gpu; XLA_CUDA_PLUGIN_PATH: another plugin.
set -euo pipefail

root=$(realpath "$(dirname "$0")/../..")
here=$root/tools/gpu
python=${PYTHON:-python}
run=
if [[ ${1:-} == --run ]]; then
  run=1
  shift
fi
out=$(realpath -m "${1:-$root/build/gpu-results}")

# What to find out, and the command for it.
steps=(
  "every op and type in a world of one, in one process"
  "run_there.py --ranks 1 --seconds 180 --out $out"
  "what a step and a call cost on the host, in one process"
  "run_there.py --ranks 1 --seconds 120 --script cost.py --out $out"
  "programs for 8 H100, A100 and B200, compiled ahead of time with the GPU there"
  "run_there.py --ranks 1 --seconds 120 --script ahead.py --out $out"
  "two ranks that share the GPU, by NCCL through sockets: every op in f32"
  "run_there.py --ranks 2 --seconds 120 --only f32 --out $out"
  "the demo's transformer block, and torch.distributed, on two ranks that share the GPU"
  "run_there.py --ranks 2 --seconds 90 --script clients.py --out $out"
)

if [[ -z $run ]]; then
  echo "On a machine with an NVIDIA GPU, '$0 --run' would find out:"
  for ((i = 0; i < ${#steps[@]}; i += 2)); do
    printf '%d. %s\n     %s\n' $((i / 2 + 1)) "${steps[i]}" "tools/gpu/${steps[i + 1]}"
  done
  exit 0
fi

if ! nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; then
  echo "$0: there is no NVIDIA GPU here, or no driver: nvidia-smi has failed" >&2
  exit 1
fi
if [[ -z ${XLA_CUDA_PLUGIN_PATH:-} ]]; then
  XLA_CUDA_PLUGIN_PATH=$("$python" -c 'import jax_plugins.xla_cuda12 as p, pathlib
print(pathlib.Path(p.__file__).with_name("xla_cuda_plugin.so"))') || {
    echo "$0: $python has no CUDA plugin: pip install 'jax-cuda12-pjrt[cuda]==0.7.1'" >&2
    exit 1
  }
fi

# torch_xla 2.9.0 refuses the platform "cuda"; renamed.c has the same plugin say another name.
mkdir -p "$out/site/cuda_plugin-0.dist-info"
cc -shared -fPIC -o "$out/renamed.so" "$here/renamed.c"
cp "$here/cuda_plugin.py" "$out/site/"
printf 'Metadata-Version: 2.1\nName: cuda_plugin\nVersion: 0\n' >"$out/site/cuda_plugin-0.dist-info/METADATA"
printf '[torch_xla.plugins]\nCUDA = cuda_plugin:CudaPlugin\n' \
  >"$out/site/cuda_plugin-0.dist-info/entry_points.txt"
export XLA_CUDA_PLUGIN_PATH XLA_RENAMED_PLUGIN=$out/renamed.so TXCC_TESTS=$root PJRT_DEVICE=CUDA
export PYTHONPATH=$out/site:$root/python${PYTHONPATH:+:$PYTHONPATH}

"$python" - <<'PYTHON'
import importlib.metadata as m
import os, sys
names = ("torch", "torch_xla", "jax-cuda12-pjrt", "jax-cuda13-pjrt")
found = {d.metadata["Name"]: d.version for d in m.distributions()}
print("Python", sys.version.split()[0], *(f"{n} {found[n]}" for n in names if n in found))
print("plugin", os.environ["XLA_CUDA_PLUGIN_PATH"])
PYTHON
for ((i = 0; i < ${#steps[@]}; i += 2)); do
  printf '\n== %d. %s\n' $((i / 2 + 1)) "${steps[i]}"
  read -ra command <<<"${steps[i + 1]}"
  # One that fails does not keep the rest from being found out.
  (cd "$here" && "$python" "${command[@]}") || echo "-- ended with $?"
done 2>&1 | tee "$out/said.txt"
