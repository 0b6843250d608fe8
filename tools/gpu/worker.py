"""One rank: runs batches of calls, and writes a line before and after each into its file."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(os.environ["TXCC_TESTS"])
sys.path[:0] = [str(ROOT / "tests/python"), str(Path(__file__).parent)]

import cases as made  # noqa: E402
from oracle import Case, meaning  # noqa: E402
from torch_xla import runtime  # noqa: E402

import torch_xla_cc  # noqa: E402
from torch_xla_cc._runtime import replicas  # noqa: E402


def _wrong(rank: int, batch: list[Case]) -> list[str]:
    wanted = [meaning(case) for case in batch]
    issued = [made.run(rank, case, want) for case, want in zip(batch, wanted, strict=True)]
    got = made.results([tensor for tensor, _ in issued])
    found = []
    for case, value, (_, want) in zip(batch, got, issued, strict=True):
        if value.dtype != want.dtype or value.shape != want.shape:
            found.append(f"{case}: {value.dtype}{value.shape} and not {want.dtype}{want.shape}")
        elif value.tobytes() != want.tobytes():
            both = value.reshape(-1)[:6], want.reshape(-1)[:6]
            same = bool(((value == want) | ((value != value) & (want != want))).all())
            if same and "reduce" in case.op:
                continue  # zeros have another sign
            bits = [part.tobytes()[:24].hex() for part in (value, want)]
            found.append(f"{case}: {'only bits differ' if same else 'wrong'} {both} {bits}")
    return found


def work(rank: int, world: int, skip: list[str], only: str) -> None:
    def say(**fields: Any) -> None:
        with open(os.environ["TXCC_RESULTS"] + f".{rank}", "a") as out:
            out.write(json.dumps(fields) + "\n")

    say(started=time.time(), world_in_launch=runtime.world_size())
    replicas.require(world)
    for op in filter(None, os.environ.get("TXCC_NOT_NATIVE", "").split(",")):
        torch_xla_cc.capabilities.register(op, "gpu", False)
    for name, batch in made.batches(world):
        if name in skip or (only and only not in name):
            continue
        say(begin=name)
        start = time.perf_counter()
        line: dict[str, Any] = {"cases": len(batch)}
        try:
            line["wrong"] = _wrong(rank, batch)
        except Exception as error:
            line["error"] = f"{type(error).__name__}: {error}"[:600]
        if "error" in line:  # one of the calls is refused: which?
            line["wrong"], line["refused"] = [], []
            for case in batch:
                gc.collect()  # tensors of what failed would be in the next graph
                try:
                    line["wrong"] += _wrong(rank, [case])
                except Exception as alone:
                    line["refused"].append(f"{case}: {alone}"[:300])
        say(end=name, s=round(time.perf_counter() - start, 3), **line)
    say(finished=time.time())


def main() -> None:
    world = int(os.environ.get("WORLD_SIZE", "1"))
    skip = json.loads(os.environ.get("TXCC_SKIP", "[]"))
    only = os.environ.get("TXCC_ONLY", "")
    if world > 1:
        torch_xla_cc.launch(work, (world, skip, only))
    else:
        work(0, 1, skip, only)


if __name__ == "__main__":
    main()
