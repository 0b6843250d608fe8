"""Starts ranks on one GPU and says what became of each batch of calls (worker.py).

    tree/run run_there.py --ranks 1 --out results --seconds 120
    tree/run run_there.py --ranks 4 --out results --seconds 120 [--only f32]

Several ranks are processes that share the GPU. NCCL refuses two ranks on one GPU of one host, so
each process names itself as another host (NCCL_HOSTID), and data goes through sockets. A batch that
ends the process, or does not end, is noted, and the rest goes on in new processes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
_STUCK_S = 60


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def environments(ranks: int, more: dict[str, str]) -> list[dict[str, str]]:
    """The variables of each rank: torchrun's, torch_xla's and NCCL's."""
    common = {**os.environ, "PJRT_DEVICE": os.environ.get("PJRT_DEVICE", "CUDA"), **more}
    common.setdefault("TORCH_XLA_CC_FALLBACK", "allow")
    if ranks == 1:
        return [common]
    common |= {
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_port()), "XLA_COORDINATOR_PORT": str(_port()),
        "TORCHELASTIC_RUN_ID": "gpu", "VISIBLE_GPU": "0", "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_NET": "Socket", "NCCL_MNNVL_ENABLE": "0",
        "GPU_MEMORY_SHARE": str(round(0.8 / ranks, 3)),
    }  # fmt: skip
    own = ("RANK", "LOCAL_RANK", "GROUP_RANK", "NCCL_HOSTID", "PJRT_LOCAL_PROCESS_RANK")
    return [{**common, **dict.fromkeys(own, str(rank))} for rank in range(ranks)]


def start(
    ranks: int, script: Path, log: Path, more: dict[str, str]
) -> list[subprocess.Popen[bytes]]:
    """Start a script on each rank."""
    processes = []
    for rank, env in enumerate(environments(ranks, more)):
        with open(f"{log}.{rank}", "ab") as file:
            command = [sys.executable, "-X", "faulthandler", str(script)]
            processes.append(subprocess.Popen(command, env=env, stdout=file, stderr=file))
    return processes


def _lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _watch(processes: list[subprocess.Popen[bytes]], results: Path, end: float) -> str:
    """Wait for all ranks; why they were ended if they were."""
    why, begun = "", time.time()
    while not why and any(process.poll() is None for process in processes):
        time.sleep(0.1)
        last = max(
            (file.stat().st_mtime for file in results.parent.glob(f"{results.name}.*")), default=0
        )
        last = max(last, begun)
        if time.time() > end:
            why = "time is up"
        elif time.time() - last > _STUCK_S:
            why = "stuck"
        elif any(process.poll() for process in processes):
            why = f"ended with {[process.poll() for process in processes]}"
    time.sleep(0.5 if why else 0)
    for process in processes:
        process.kill()
        process.wait()
    return why


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", default="")
    parser.add_argument("--tail", type=int, default=40)
    parser.add_argument(
        "--script", type=Path, help="run this one on each rank instead, and print what it prints"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.script:
        log = args.out / f"{args.script.stem}{args.ranks}"
        why = _watch(
            start(args.ranks, HERE / args.script, log, {}), log, time.time() + args.seconds
        )
        for rank in range(args.ranks):
            lines = Path(f"{log}.{rank}").read_text(errors="replace").splitlines()
            print(
                f"-- {args.script} on rank {rank} of {args.ranks}: {why or 'ended'}",
                *lines[-args.tail :],
                sep="\n",
            )
        return 0
    results, log = args.out / f"ranks{args.ranks}", args.out / f"log{args.ranks}"
    end = time.time() + args.seconds
    skip: list[str] = []
    died: dict[str, str] = {}
    for _ in range(12):
        more = {"TXCC_RESULTS": str(results), "TXCC_SKIP": json.dumps(skip), "TXCC_ONLY": args.only}
        begun = time.time()
        why = _watch(start(args.ranks, HERE / "worker.py", log, more), results, end)
        lines = _lines(Path(f"{results}.0"))
        skip = [str(line["begin"]) for line in lines if "begin" in line]
        if (
            not why
            or time.time() > end
            or not any(line.get("started", 0) >= begun for line in lines)
        ):
            break
        died[skip[-1] if skip else "start"] = why
        if len(died) == 3 and not any("end" in line for line in lines):
            break  # nothing runs
    ends = [
        line
        for rank in range(args.ranks)
        for line in _lines(Path(f"{results}.{rank}"))
        if "end" in line
    ]
    for line in ends:
        for kind in ("error", "refused", "wrong"):
            if line.get(kind):
                print(kind, line["end"], str(line[kind])[:700])
    names = {str(line["end"]) for line in ends}
    calls = sum(int(str(line["cases"])) for line in _lines(Path(f"{results}.0")) if "end" in line)
    print(
        f"{args.ranks} ranks: {len(names)} batches, {calls} calls a rank; died: {died}; "
        f"last: {why or 'all done'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
