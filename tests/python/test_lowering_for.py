"""lowering_for: what is lowered for the target, and where that ends."""

import pytest
import torch
import torch_xla

import torch_xla_cc
from torch_xla_cc import _C, functions
from torch_xla_cc._runtime.private import XLAC


def gathered_loss():
    x = torch.rand(4, 6).to(torch_xla.device()).requires_grad_()
    return x, (functions.all_gather(x, 0) ** 2).sum()


def test_gradients_are_of_the_target():
    """Autograd has a thread of its own for them, which had no target."""
    with torch_xla_cc.lowering_for("tpu:v5e:2x4"):
        x, loss = gathered_loss()
        loss.backward()
        text = XLAC._get_xla_tensors_hlo([x.grad])
    assert x.grad.shape == x.shape and " reduce-scatter(" in text
    assert "replica_groups=[1,8]<=[8]" in text or "replica_groups={{0,1,2,3,4,5,6,7}}" in text


@pytest.mark.parametrize("before", [True, False])
def test_autograd_is_afterwards_as_it_was(before):
    with torch.autograd.set_multithreading_enabled(before):
        with pytest.raises(KeyError), torch_xla_cc.lowering_for("cpu", 2):
            assert not torch._C._is_multithreading_enabled()
            raise KeyError
        assert torch._C._is_multithreading_enabled() == before
        assert _C.thread_target() is None
