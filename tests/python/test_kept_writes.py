"""What is written to a tensor by its views is not kept once the tensor is gone."""

import gc

import pytest
import torch
import torch_xla
from torch_xla.debug import metrics


def living():
    """How many tensors torch_xla has."""
    gc.collect()
    made, gone = (metrics.counter_value(f"{what}XlaTensor") or 0 for what in ("Create", "Destroy"))
    return made - gone


@pytest.mark.parametrize(("size", "place"), [((2, 6), 0), ((13,), 3), ((1, 5), 23)])
def test_nothing_is_kept_of_what_as_strided_has_written(size, place):
    """As DistributedDataParallel writes to its buckets."""
    torch_xla.sync()
    before = living()
    whole = torch.zeros(28, device="xla")
    view = whole.as_strided(size, (size[-1], 1)[-len(size) :], place)
    torch.mul(torch.full(size, 2.0, device="xla"), 3.0, out=view)
    assert whole.sum().item() == 6.0 * view.numel()
    del whole, view
    assert living() == before
