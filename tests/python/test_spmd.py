"""Collectives in torch_xla's SPMD mode, in regions that are sharded by hand.

Each op, type, kind of reduction and form of groups against oracle.py, as on threads; whole programs
and their gradients against jax.shard_map; and what is refused.
"""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import spmd_programs
import torch
import torch_xla
import torch_xla.distributed.spmd as xs
import worlds
from operands import any_bits, exact_values
from oracle import DTYPES, Case, differences, issue, meaning, put, take_all
from test_uneven import cases_of
from test_values import MOVES, reductions, share

from torch_xla_cc import Channel, functions, regions, spmd
from torch_xla_cc import xla_model as xm
from torch_xla_cc._hlo.text import Reader

WORLD = 4


@pytest.fixture(scope="module")
def world():
    with worlds.partitions(WORLD) as one:
        yield one


def mesh(ids=range(WORLD), shape=(WORLD,), names=("x",)):
    return xs.Mesh(np.array(ids), shape, names)


def enter(x, spec):
    return xs.enable_manual_sharding(x, spec, mesh=mesh()).global_tensor


def leave(x, spec, shape):
    return xs.disable_manual_sharding(x, spec, torch.Size(shape), mesh=mesh()).global_tensor


def quiet(values):
    """With the NaN only that XLA:CPU makes of others where it computes in wider types."""
    if values.dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        bits = 0x7FC0 if values.dtype == ml_dtypes.bfloat16 else 0x7F
        values.view(f"u{values.itemsize}")[np.isnan(values)] = bits
    return values


def issue_on_partitions(cases):
    """All calls in one program; their results, for each partition."""
    results = []
    for case in cases:
        x = put(np.stack(case.inputs))
        shard = enter(x, ("x", *[None] * (x.dim() - 1))).reshape(x.shape[1:])
        result = issue(case, shard)
        spec = ("x", *[None] * result.dim())
        results.append(leave(result.unsqueeze(0), spec, [WORLD, *result.shape]))
        del shard, result  # a shard that lives when the program runs would be a result of it
    return [list(result) for result in take_all(results)]


def check(world, cases, bitwise=False):
    found = []
    for case, results in zip(cases, world.run(issue_on_partitions, cases), strict=True):
        found += differences(case, results, bitwise)
    assert not found, "\n".join([f"{len(found)} wrong results", *found[:8]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_data_movement_keeps_every_bit(world, dtype):
    """But for NaNs of bfloat16 and float8_e5m2, of which XLA:CPU makes one."""
    rng = np.random.default_rng(1)
    cases = [
        Case(op, [quiet(any_bits(rng, dtype, shape)) for _ in range(WORLD)], fields)
        for make in MOVES.values()
        for op, shape, fields in share(make(WORLD), WORLD, dtype)
    ]
    check(world, cases, bitwise=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(world, dtype):
    rng = np.random.default_rng(2)
    cases = []
    for op in ("all_reduce", "reduce_scatter"):
        for shape, fields in share(reductions(WORLD, dtype, op), WORLD, dtype):
            inputs = [exact_values(rng, dtype, shape, fields["reduce_type"]) for _ in range(WORLD)]
            cases.append(Case(op, inputs, fields))
    check(world, cases)


def padded_on_partitions(cases):
    """Uneven calls, on operands that are filled up with zeros; results are cut to their rows."""
    results = []
    for case in cases:
        most = max(map(len, case.inputs))
        filled = [np.zeros((most, *x.shape[1:]), x.dtype) for x in case.inputs]
        for whole, own in zip(filled, case.inputs, strict=True):
            whole[: len(own)] = own
        x = put(np.stack(filled))
        shard = enter(x, ("x", *[None] * (x.dim() - 1))).reshape(x.shape[1:])
        fields = dict(case.fields)
        kind = [fields.pop("reduce_type")] if "reduce_type" in fields else []
        result = getattr(xm, case.op)(*kind, shard, **fields, padded=True)
        spec = ("x", *[None] * result.dim())
        results.append(leave(result.unsqueeze(0), spec, [WORLD, *result.shape]))
        del shard, result
    return [list(result) for result in take_all(results)]


@pytest.mark.parametrize("op", ["uneven_all_gather", "uneven_reduce_scatter", "uneven_all_to_all"])
def test_uneven(world, op):
    cases = [
        case
        for case in cases_of(op, WORLD, "s32", np.random.default_rng(3))
        if max(map(len, case.inputs))
    ]
    found = []
    for case, results in zip(cases, world.run(padded_on_partitions, cases), strict=True):
        cut = [result[: len(exact)] for result, exact in zip(results, meaning(case), strict=True)]
        found += differences(case, cut)
    assert not found, "\n".join([f"{len(found)} wrong results", *found[:8]])


CALLS = {
    "all_gather": lambda x: xm.all_gather(x),
    "all_reduce": lambda x: xm.all_reduce("sum", [x]),
    "reduce_scatter": lambda x: xm.reduce_scatter("sum", x, 1.0, 0, 4),
    "all_to_all": lambda x: xm.all_to_all(x, 0, 1),
    "collective_permute": lambda x: xm.collective_permute(x, [(0, 1)]),
    "collective_broadcast": lambda x: xm.collective_broadcast([x]),
    "recv": lambda x: xm.recv(xm.send(x, Channel([(0, 1)])), Channel([(0, 1)])),
}


def refused(op):
    """What a call says outside of a region: on data, on what is sharded, before and after one."""
    call = CALLS[op]
    data = torch.ones(4, 4, device=torch_xla.device())
    sharded = torch.ones(4, 4, device=torch_xla.device())
    xs.mark_sharding(sharded, mesh(), ("x", None))
    shard = enter(data.clone() + 1, ("x", None))
    after = leave(shard * 2, ("x", None), [4, 4]) + 1
    same = enter(data.clone() + 1, (None, None))  # with the shape of the whole
    after_same = leave(same * 2, (None, None), [4, 4]) + 1
    messages = []
    for x in (data, data + 1, sharded, sharded * 2, after, after_same):
        try:
            call(x)
            messages.append("")
        except ValueError as error:
            messages.append(str(error))
    call(same + 1)
    return messages, after.cpu().tolist()


@pytest.mark.parametrize("op", CALLS)
def test_outside_of_a_region_it_is_refused(world, op):
    messages, after = world.run(refused, op)
    assert len(messages) == 6
    for message in messages:
        assert re.search(
            rf"^(?:{op}|send): operand 0 = f32\[4,4\], .*\(A5\)\. .*docs/spmd.md", message
        )
    assert after == [[5.0] * 4] * 4


@pytest.fixture(scope="module")
def jax_results(tmp_path_factory):
    """What JAX gives for the programs, in a process of its own: it has an XLA of its own."""
    file = tmp_path_factory.mktemp("jax") / "results.npz"
    subprocess.run(
        [sys.executable, spmd_programs.__file__, "results", str(file)],
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={WORLD}",
        },
        check=True,
        capture_output=True,
        timeout=240,
    )
    return np.load(file)


@pytest.mark.parametrize("name", spmd_programs.PROGRAMS)
def test_programs_and_gradients_are_those_of_jax(world, jax_results, name):
    result, grads = world.run(spmd_programs.in_torch, name, timeout_s=120)
    np.testing.assert_allclose(result, jax_results[name], rtol=1e-5, atol=1e-5)
    for i, grad in enumerate(grads):
        np.testing.assert_allclose(grad, jax_results[f"{name} {i}"], rtol=1e-4, atol=1e-5)
        assert np.abs(grad).max() > 0.01


NATIVE = {
    "all-gather": "all_gather",
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "collective-permute": "collective_permute",
}


def one_call(op):
    x = torch.randn(16, 4).to(torch_xla.device())  # not of ones, which XLA:CPU folds
    shard = enter(x, ("x", None))
    result = CALLS[op](shard)
    result = result[0] if isinstance(result, list) else result
    whole = leave(result, ("x", None), [4 * result.shape[0], result.shape[1]])
    del shard, result
    return whole.cpu().shape


def test_what_xla_runs(tmp_path):
    with worlds.partitions(WORLD, {"XLA_FLAGS": f"--xla_dump_to={tmp_path}"}) as world:
        for op in NATIVE.values():
            world.run(one_call, op)
    found = []
    for file in tmp_path.glob("*after_optimizations.txt"):
        reader = Reader(file.read_text().splitlines())
        for computation in reader.computations():
            for one in computation.instructions:
                if one.opcode in NATIVE and one.source.op_type.startswith("xla_cc."):
                    found.append(one.opcode)
                    assert one.source.op_type == f"xla_cc.{NATIVE[one.opcode]}"
                    assert one.source.op_name.endswith(" native")
                    assert reader.header.partitions == WORLD
                    assert reader.header.replicas == 1
                    assert one.channel_id
    assert sorted(found) == sorted(NATIVE)


def mistakes():
    line = mesh()
    x = torch.ones(8, 6, device=torch_xla.device())
    found = []
    for call in (
        lambda: spmd.shard_map(lambda x: x, line, [("x",)], ("x", None))(x),
        lambda: spmd.shard_map(lambda x: x, line, [("x", None)], ("x",))(x),
        lambda: spmd.shard_map(lambda x: x, line, [(None, "x")], (None, "x"))(x),
        lambda: spmd.shard_map(lambda x: x, line, [("x", None)], ("x", None))(x, x),
        lambda: spmd.shard_map(lambda x: (x, x), line, [("x", None)], ("x", None))(x),
        lambda: spmd.shard_map(lambda x: x, xs.Mesh([0, 1, 2, 3], (4,)), [], ()),
        lambda: spmd.groups(line, "y"),
        lambda: spmd.shard_map(lambda x: xm.all_gather(x, 0, [[0, 4]]), line, [("x", None)], ())(x),
        lambda: spmd.shard_map(
            lambda x: regions.all_gather_matmul(x, x.mT), line, [("x", None)], ("x", None)
        )(x),
        lambda: spmd.shard_map(lambda x: functions.scatter(x, 1), line, [("x", None)], ("x", None))(
            x
        ),
        lambda: spmd.shard_map(lambda x: regions.own_block(x, 0), line, [("x", None)], ("x", None))(
            x
        ),
        lambda: spmd.shard_map(lambda x: x, line, [("x", None)], (("x", None), ("x",))),
        lambda: spmd.shard_map(lambda x: x, line, [("x", None)], ("y", None)),
        lambda: spmd.shard_map(lambda x: x, line, ("x", None), ("x", None)),
        lambda: spmd.shard_map(lambda x: x, line, [(["x"], None)], ("x", None)),
        lambda: spmd.shard_map(lambda x: x, line, [({}, None)], ("x", None)),
        lambda: spmd.shard_map(lambda x: x, line, None, ("x", None)),
        lambda: spmd.shard_map(lambda x: x, line, [("x", None)], None),
        lambda: spmd.shard_map(lambda x: x, line, [("x", None)], ("x", None))(5),
        lambda: spmd.shard_map(lambda x: None, line, [("x", None)], ("x", None))(x),
        lambda: spmd.shard_map(lambda x: x, line, [("x", None)], ("x", None))(x.cpu()),
    ):
        try:
            call()
            found.append("")
        except (TypeError, ValueError) as error:
            found.append(str(error))
    same = spmd.shard_map(lambda x: [x, x], line, [("x", None)], [("x", None), ("x", None)])(x)
    return found, [one.cpu().tolist() == x.cpu().tolist() for one in same]


def test_mistakes(world):
    found, same = world.run(mistakes)
    wanted = [
        "spec = ('x',) of a tensor of shape [8, 6]",
        "spec = ('x',) of a result of shape [2, 6]",
        "cuts 6 of shape [8, 6] into 4 parts",
        "2 arguments, but there are 1 in_specs",
        "2 results, but there are 1 out_specs",
        "mesh has no names for its axes",
        "axis = 'y', but it must be of the mesh's: ('x',)",
        "(G1)",
        "all_gather_matmul: ranks are partitions here (spmd:cpu)",
        "scatter: ranks are partitions here (spmd:cpu)",
        "own_block: ranks are partitions here (spmd:cpu)",
        "out_specs = (('x', None), ('x',)) has ('x', None) for a dimension, but it must be None",
        "out_specs = ('y', None) has 'y' for a dimension, but it must be None",
        "in_specs = ('x', None) has 'x' for a spec, but each must be a tuple",
        "in_specs = [(['x'], None)] has ['x'] for a dimension, but it must be None",
        "in_specs = [({}, None)] has {} for a dimension, but it must be None",
        "in_specs = None, but it must be a list of specs",
        "out_specs = None, but it must be a list of specs",
        "argument 0 = 5, but it must be a tensor",
        "result 0 of <lambda> = None, but it must be a tensor",
        "argument 0 is on cpu, but it must be on the XLA device",
    ]
    for message, part in zip(found, wanted, strict=True):
        assert part in message
    assert same == [True, True]


def in_two_steps():
    x = torch.arange(32.0).reshape(8, 4).to(torch_xla.device()).requires_grad_()
    gathered = spmd.shard_map(
        lambda x: functions.all_gather(x * x, 0).sum() * x, mesh(), [("x", None)], ("x", None)
    )(x)
    torch_xla.sync()
    first = gathered.detach().cpu()
    gathered.sum().backward()
    return first, x.grad.cpu()


def test_forward_and_backward_may_be_in_different_steps(world):
    first, grad = world.run(in_two_steps)
    x = torch.arange(32.0).reshape(8, 4)
    squares = (x * x).sum()
    torch.testing.assert_close(first, squares * x)
    torch.testing.assert_close(grad, squares + 2 * x * x.sum())


EXAMPLE = Path(__file__).parents[2] / "examples/spmd.py"


def example_losses():
    return runpy.run_path(str(EXAMPLE))["train"]()


def plain_losses():
    torch.manual_seed(0)
    x = torch.randn(32, 16)
    weights = [torch.randn(16, 64) / 4, torch.randn(64, 4) / 8]
    weights = [weight.requires_grad_() for weight in weights]
    optimizer = torch.optim.AdamW(weights, lr=1e-2)
    wanted = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(torch.tanh(x @ weights[0]) @ weights[1], x[:, :4].sin())
        loss.backward()
        optimizer.step()
        wanted.append(loss.item())
    return wanted


# In the process of the partitions: in this one, where XLA's devices may be wanted later, autograd
# would count its devices without them.
def test_the_example_trains_as_plain_torch(world):
    wanted = world.run(plain_losses)
    assert world.run(example_losses, timeout_s=120) == pytest.approx(wanted, rel=1e-5)
