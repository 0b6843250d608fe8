"""What ranks of a pod run that has to be given one program."""

import torch

from torch_xla_cc import xla_model as xm


def same(rank):
    """A step of tensors that differ."""
    x = torch.full((6,), rank + 2.0).to("xla")
    for _ in range(3):
        x = xm.all_reduce(xm.REDUCE_SUM, x) / 2
    return x.tolist()


def a_rank_in_it(rank):
    """A rank's number as a constant: of a slice."""
    x = torch.arange(6.0).to("xla")
    return xm.all_gather(x[rank : rank + 2]).tolist()


def read_by_one(rank):
    """What one reads alone."""
    x = torch.arange(6.0).to("xla")
    y = xm.all_reduce(xm.REDUCE_SUM, x)
    first = y.tolist() if rank == 0 else None
    z = xm.all_reduce(xm.REDUCE_MAX, x + 1)
    return first, z.tolist()


def told(rank, what):
    """The error of `what`."""
    try:
        return globals()[what](rank)
    except (RuntimeError, ValueError) as error:
        return str(error)
