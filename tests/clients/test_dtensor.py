"""Tensor parallelism with DTensor, and DTensor itself on a mesh of XLA devices."""

import runs


def test_losses_of_a_2d_mesh_are_those_of_gloo():
    runs.same_losses("dtensor_tp.py", "--tp=2", ranks=4)


def test_losses_of_tensor_parallelism_and_fully_shard_are_those_of_gloo():
    ran = runs.same_losses("dtensor_tp.py", "--tp=2", "--fsdp=1", steps=6, ranks=4)
    assert "reduce_scatter_tensor" in ran.output


def test_losses_of_tensor_parallelism_are_those_of_gloo():
    runs.same_losses("dtensor_tp.py", "--tp=2")


def test_values():
    assert "all equal" in runs.run("../../tests/clients/dtensor_values.py", ranks=4).output


def test_optimizers_step_the_ranks_own_parts():
    assert "all equal" in runs.run("../../tests/clients/dtensor_optimizers.py", ranks=4).output
