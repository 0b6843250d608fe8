"""FullyShardedDataParallel of torch (FSDP1)."""

import threading

import forks
import pytest
import runs
import torch
import torch.distributed as dist
import worlds
from torch import nn


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


_seeding = threading.Lock()  # the random state is of the process


def _net():
    with _seeding:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 5), nn.Linear(5, 3))


def _batch(rank, step):
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(6, 7, generator=generator)


def on_threads(rank, strategy, orig):
    import torch_xla
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    from torch_xla_cc.adapters import fsdp1

    dist.init_process_group("xla_cc")
    device, found = torch_xla.device(), []
    options = {
        "device_id": device,
        "sharding_strategy": ShardingStrategy[strategy],
        "use_orig_params": orig,
    }
    with fsdp1.installed():
        model = _net()
        for i in (0, 2):
            model[i] = FullyShardedDataParallel(model[i], **options)
        model = FullyShardedDataParallel(model, **options)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        for step in range(3):
            optimizer.zero_grad()
            loss = model(_batch(rank, step).to(device)).square().mean()
            loss.backward()
            norm = model.clip_grad_norm_(0.1)
            optimizer.step()
            found += [loss.item(), norm.item()]
    dist.destroy_process_group()
    return found


def _on_one(size):
    """The same of the whole batch: what each rank sees."""
    model = _net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    found = [[] for _ in range(size)]
    for step in range(3):
        optimizer.zero_grad()
        losses = [model(_batch(rank, step)).square().mean() for rank in range(size)]
        torch.stack(losses).mean().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        for of_rank, loss in zip(found, losses, strict=True):
            of_rank += [loss.item(), norm.item()]
    return found


@pytest.mark.parametrize(
    ("strategy", "orig"), [("FULL_SHARD", False), ("SHARD_GRAD_OP", True), ("NO_SHARD", True)]
)
def test_ranks_on_threads(strategy, orig):
    for found, wanted in zip(worlds.run(3, on_threads, strategy, orig), _on_one(3), strict=True):
        assert found == pytest.approx(wanted, rel=1e-4)


@forks.alone
def test_ranks_of_a_tpu_trace_one_program():
    import fsdp1_for_tpu as for_tpu

    for strategy in ("FULL_SHARD", "SHARD_GRAD_OP"):
        for_tpu.module(0, strategy, False)  # the first of a process has results in another order
        assert len({for_tpu.module(rank, strategy, False) for rank in (0, 5, 7)}) == 1
    # As docs/clients/fsdp1.md says: the optimizer steps with what the rank has of each parameter.
    assert len({for_tpu.module(rank, "FULL_SHARD", True) for rank in (0, 5, 7)}) > 1


@forks.alone
def test_a_step_is_compiled_for_a_tpu():
    pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")
    import fsdp1_for_tpu as for_tpu

    kept = {"all-gather": 2, "reduce-scatter": 2}
    # What the forward pass gathered the compiler keeps, and gathers it no second time.
    assert for_tpu.calls_and_compiled("FULL_SHARD") == ({**kept, "all-gather": 4}, kept)
    assert for_tpu.calls_and_compiled("SHARD_GRAD_OP") == (kept, kept)
