"""fully_shard (FSDP2)."""

import runs


def test_losses_are_those_of_gloo():
    runs.same_losses("fsdp2.py")


def test_replicas_accumulation_and_bfloat16():
    # XLA and torch's kernels for the CPU round at different places.
    options = ("--replicas=2", "--accumulate=2", "--bf16=1")
    runs.same_losses("fsdp2.py", *options, rel=2e-3, steps=8)
