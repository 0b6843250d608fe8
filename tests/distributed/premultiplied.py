"""PREMUL_SUM of narrow floats, as a function of the rank: what it gives beside what is right."""

import torch
import torch.distributed as dist
import torch_xla

# A third is in no type; the last is none of f16's normal numbers.
FACTORS = (0.1, -1.0 / 3.0, 3.0, -40.0, 1e-5)
NARROW = (torch.float16, torch.bfloat16)


def operand(rank: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return (torch.rand(64, generator=generator, dtype=torch.float64) * 8 - 4).to(dtype)


def sums(rank: int) -> list[tuple[str, float, float]]:
    """By case how far it is from the sum in f64: of what is allowed, and of one rounding."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    size, found = dist.get_world_size(), []
    for dtype in NARROW:
        for factor in FACTORS:
            own = torch.tensor(factor, dtype=dtype).double()  # as the type has it
            parts = [operand(peer, dtype).double() * own for peer in range(size)]
            right, weight = sum(parts), sum(part.abs() for part in parts)
            x = operand(rank, dtype).to(torch_xla.device())
            dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
            wrong = (x.cpu().double() - right).abs()
            limits = torch.finfo(dtype)
            tiny = limits.smallest_normal * limits.eps
            allowed = (size + 1) * (limits.eps / 2 * weight + tiny)
            once = limits.eps / 2 * right.abs() + tiny / 2 + 1e-6 * weight  # and that of f32
            found.append(
                (f"{dtype} {factor}", float((wrong / allowed).max()), float((wrong / once).max()))
            )
    return found


def beyond(rank: int) -> list[str]:
    """Factors that the type has not, and what is said of them."""
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,xla:xla_cc")
    said = []
    for dtype, factor in ((torch.float16, 65505.0), (torch.bfloat16, 3.4e38)):
        try:
            x = torch.ones(2, dtype=dtype, device=torch_xla.device())
            dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
        except ValueError as error:
            said.append(str(error))
    return said
