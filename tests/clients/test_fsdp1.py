"""FullyShardedDataParallel of torch (FSDP1)."""

import pytest
import runs


@pytest.mark.parametrize(("strategy", "orig"), [(0, 0), (1, 1), (2, 0)])
def test_losses_are_those_of_gloo(strategy, orig):
    options = (f"--strategy={strategy}", f"--orig={orig}", "--accumulate=2", "--clip=1")
    runs.same_losses("fsdp1.py", *options)


def test_replicas_and_blocks_computed_again():
    runs.same_losses("fsdp1.py", "--strategy=3", "--orig=1", "--checkpoint=1", ranks=4)


@pytest.mark.parametrize("strategy", [0, 1])
def test_bfloat16(strategy):
    # XLA and torch's kernels for the CPU round at different places.
    options = (f"--strategy={strategy}", f"--orig={1 - strategy}", "--accumulate=2", "--bf16=1")
    runs.same_losses("fsdp1.py", *options, rel=2e-3)


def test_values_and_state_dicts():
    assert "all equal" in runs.run("../../tests/clients/fsdp1_values.py").output


def test_what_is_gathered_is_freed():
    assert "all freed" in runs.run("../../tests/clients/fsdp1_memory.py").output


def test_uninstall_undoes_install():
    from torch.distributed.fsdp import _flat_param as flat
    from torch.distributed.fsdp import _fsdp_extensions, _runtime_utils

    from torch_xla_cc.adapters import fsdp1

    def state():
        places = (flat, flat.FlatParamHandle, _runtime_utils, _fsdp_extensions)
        return [dict(vars(place)) for place in places]

    before = state()
    fsdp1.install()
    assert all(new != old for new, old in zip(state(), before, strict=True))
    fsdp1.uninstall()
    assert state() == before
