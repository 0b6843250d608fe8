"""What type checkers tell users; checked by mypy in `make lint`, and never run."""

import torch
from typing_extensions import assert_type

import torch_xla_cc
from torch_xla_cc import capabilities, functions
from torch_xla_cc import xla_model as xm


def of_a_tensor_a_tensor(x: torch.Tensor) -> None:
    assert_type(xm.all_reduce(xm.REDUCE_SUM, x), torch.Tensor)
    assert_type(xm.all_gather(x, 1, groups=[[0, 1], [2, 3]]), torch.Tensor)
    assert_type(xm.reduce_scatter("average", x, output=x), torch.Tensor)
    assert_type(xm.all_to_all(x, 0, 1), torch.Tensor)
    assert_type(xm.collective_permute(x, [(0, 1), (1, 0)]), torch.Tensor)
    assert_type(xm.uneven_all_gather(x, [3, 0, 5]), torch.Tensor)
    assert_type(functions.all_reduce("max", x), torch.Tensor)


def of_a_list_a_list(xs: list[torch.Tensor]) -> None:
    assert_type(xm.all_reduce("sum", xs), list[torch.Tensor])
    assert_type(xm.all_gather(xs, fallback="error"), list[torch.Tensor])
    assert_type(xm.uneven_all_to_all(xs, [[1, 2], [3, 4]]), list[torch.Tensor])
    assert_type(xm.all_gather_bucketized(xs), list[torch.Tensor])
    assert_type(xm.collective_broadcast(xs), None)


def what_is_refused(x: torch.Tensor, xs: list[torch.Tensor]) -> None:
    xm.all_reduce("sums", x)  # type: ignore[arg-type]
    xm.all_gather(x, output=xs)  # type: ignore[type-var]
    xm.all_gather(x, fallback="never")  # type: ignore[arg-type]
    xm.all_gather(x, groups=[0, 1])  # type: ignore[list-item]
    capabilities.explain("all_reduce", reduce_type="plus")  # type: ignore[arg-type]
    with torch_xla_cc.fallback("never"):  # type: ignore[arg-type]
        pass
