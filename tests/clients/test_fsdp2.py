"""fully_shard (FSDP2)."""

from pathlib import Path

import runs


def test_losses_are_those_of_gloo():
    runs.same_losses("fsdp2.py")


def test_replicas_accumulation_and_bfloat16():
    # XLA and torch's kernels for the CPU round at different places.
    options = ("--replicas=2", "--accumulate=2", "--bf16=1")
    runs.same_losses("fsdp2.py", *options, rel=2e-3, ranks=4)


def test_what_is_gathered_is_freed():
    runs.run(str(Path(__file__).parent / "fsdp2_memory.py"))


def test_uninstall_undoes_install():
    from torch.distributed.fsdp._fully_shard import _fsdp_param
    from torch.distributed.tensor import DTensor

    from torch_xla_cc.adapters import fsdp

    def state():
        own = _fsdp_param.FSDPParam
        return [
            _fsdp_param.alloc_storage,
            _fsdp_param.free_storage,
            own.alloc_all_gather_outputs,
            own.free_unsharded_param,
            vars(DTensor)["__torch_dispatch__"],
        ]

    before = state()
    fsdp.install()
    assert all(new is not old for new, old in zip(state(), before, strict=True))
    fsdp.uninstall()
    assert state() == before
