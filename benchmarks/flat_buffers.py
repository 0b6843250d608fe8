"""Gradients summed into the views of one flat buffer: torch_xla's kernels against ours."""

from __future__ import annotations

import time

VIEWS = 40
SHAPE = (100, 100)
STEPS = 5


def _times(kind: str) -> tuple[float, float]:
    """Seconds of the first step, which compiles, and ms of each that follows."""
    import torch
    import torch_xla

    device = torch_xla.device()
    size = SHAPE[0] * SHAPE[1]
    buffer = torch.zeros(VIEWS * size, device=device)
    if kind == "slices":
        views = [buffer[i * size : (i + 1) * size].view(SHAPE) for i in range(VIEWS)]
    else:
        views = [buffer.as_strided(SHAPE, (SHAPE[1], 1), i * size) for i in range(VIEWS)]
    gradients = [torch.ones(SHAPE, device=device) for _ in range(VIEWS)]

    def steps(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            for view, gradient in zip(views, gradients, strict=True):
                view.add_(gradient)
            torch_xla.sync()
        buffer[:1].cpu()
        return time.perf_counter() - start

    first = steps(1)
    steps(2)  # the buffer's views are now results of a program: the next is another one
    each = steps(STEPS) / STEPS * 1e3
    wanted = float(1 + 2 + STEPS)
    if not torch.equal(buffer.cpu(), torch.full((VIEWS * size,), wanted)):
        raise RuntimeError(f"{kind}: the sums are not {wanted}")
    return first, each


def run(kind: str) -> list[tuple[str, ...]]:
    """A row. torch_xla's first: importing torch_xla_cc takes the place of its kernels."""
    theirs = _times(kind)
    import torch_xla_cc  # noqa: F401

    ours = _times(kind)
    return [
        (
            kind,
            f"{theirs[0]:.2f}",
            f"{ours[0]:.2f}",
            f"{theirs[1]:.1f}",
            f"{ours[1]:.1f}",
            f"{ours[1] / theirs[1]:.3f}",
        )
    ]


if __name__ == "__main__":
    for kind in ("slices", "as_strided"):
        print(run(kind))
