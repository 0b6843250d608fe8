#!/usr/bin/env bash
# Two hosts on one machine, to try a program for several: two network namespaces with a cable between
# them, and torchrun on each. As root, with `ip` of iproute2.
#
#     examples/cluster/two_hosts.sh                                    # examples/cluster/train.py
#     examples/cluster/two_hosts.sh train.py --steps=100
set -euo pipefail

here=$(realpath "$(dirname "$0")")
if (($# == 0)); then
  set -- "$here/train.py"
fi
if ((EUID != 0)) || ! command -v ip >/dev/null; then
  echo "$0 needs root, and ip (Debian: apt-get install iproute2)" >&2
  exit 77
fi

hosts=("txcc$$a" "txcc$$b")
# shellcheck disable=SC2317  # called by trap
clean_up() {
  for host in "${hosts[@]}"; do
    ip netns pids "$host" 2>/dev/null | xargs --no-run-if-empty kill -KILL 2>/dev/null || true
    ip netns delete "$host" 2>/dev/null || true
  done
}
trap clean_up EXIT
for host in "${hosts[@]}"; do
  if ! ip netns add "$host"; then
    echo "$0: this machine does not let network namespaces be made" >&2
    exit 77
  fi
done
ip link add eth0 netns "${hosts[0]}" type veth peer name eth0 netns "${hosts[1]}"
for i in 0 1; do
  ip -n "${hosts[i]}" address add "10.78.0.$((i + 1))/24" dev eth0
  ip -n "${hosts[i]}" link set lo up
  ip -n "${hosts[i]}" link set eth0 up
done

# torch's own gloo takes the address of the host's name, which here is 127.0.0.1 on both.
export NNODES=2 MASTER_ADDR=10.78.0.1 GLOO_SOCKET_IFNAME=eth0
running=()
for i in 0 1; do
  NODE_RANK=$i ip netns exec "${hosts[i]}" "$here/torchrun.sh" "$@" \
    > >(sed -u "s/^/host $i | /") 2>&1 &
  running+=("$!")
done
status=0
for process in "${running[@]}"; do
  wait "$process" || status=$?
done
exit "$status"
