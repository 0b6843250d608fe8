#!/usr/bin/env bash
# Run this on each of several hosts, with its own NODE_RANK: 0 on the one whose address is
# MASTER_ADDR, then 1, 2, ...
#
#     NNODES=2 NODE_RANK=0 MASTER_ADDR=10.0.0.1 examples/cluster/torchrun.sh train.py --steps=100
set -euo pipefail

: "${NNODES:?how many hosts there are}"
: "${NODE_RANK:?the number of this host, from 0 on}"
: "${MASTER_ADDR:?an address of host 0 that all others reach}"

export PJRT_DEVICE=${PJRT_DEVICE:-POD}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# How long ranks wait for one that is late, before they say which it is.
export TORCH_XLA_CC_TIMEOUT_S=${TORCH_XLA_CC_TIMEOUT_S:-600}
# Where the flight recorder's files go when something fails, and what the ranks print.
logs=${LOGS:-logs}/node$NODE_RANK
export TORCH_XLA_CC_DUMP=${TORCH_XLA_CC_DUMP:-$logs}

exec "${PYTHON:-python3}" -m torch.distributed.run \
  --nnodes="$NNODES" --node-rank="$NODE_RANK" --nproc-per-node="${NPROC_PER_NODE:-2}" \
  --master-addr="$MASTER_ADDR" --master-port="${MASTER_PORT:-29500}" \
  --log-dir="$logs" --tee=3 "$@"
