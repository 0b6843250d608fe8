"""Fallbacks are never silent: warned about, forbidden when asked, counted, listed, explained."""

import contextlib
import os
import subprocess
import sys
import warnings

import forks
import pytest
import torch
import torch_xla
import worlds
from torch_xla.debug import metrics

import torch_xla_cc
from torch_xla_cc import FallbackForbidden, FallbackWarning, capabilities, lowering_for
from torch_xla_cc import xla_model as xm

HALVES = [[0, 1], [2, 3]]


def operand():
    return torch.ones(8, 4, device=torch_xla.device())


def exchange(rank, policy):
    with torch_xla_cc.fallback(policy):
        return xm.all_to_all(operand(), 0, 0).cpu().tolist()


def test_forbidden():
    with pytest.raises(FallbackForbidden) as caught:
        worlds.run(4, exchange, "error")
    message = str(caught.value)
    assert message.startswith(
        "all_to_all(split_dim=0, concat_dim=0, groups=world) of f32[8,4] on cpu"
    )
    assert "384 B instead of 96 B on the wire and 512 B instead of 128 B of results" in message
    assert "fallback='allow'" in message
    assert worlds.run(4, exchange, "allow")[0][0][0] == 1, "the ranks go on"


def per_call(rank):
    found = []
    for call in (
        lambda: xm.all_to_all(operand(), 0, 0, fallback="error"),
        lambda: xm.collective_permute(operand(), [[0, 1]], fallback="error"),
        lambda: xm.collective_broadcast([operand()], fallback="error"),
        lambda: xm.uneven_all_to_all(operand(), [[2] * 4] * 4, fallback="error"),
        lambda: xm.reduce_scatter_bucketized("xor", [operand().int()], fallback="error"),
        lambda: xm.send(operand(), 5, fallback="error"),
        lambda: xm.recv(operand(), 5, fallback="error"),
    ):
        try:
            call()
            found.append("taken")
        except FallbackForbidden:
            found.append("forbidden")
    with torch_xla_cc.fallback("error"):
        x = xm.all_to_all(operand(), 0, 0, fallback="allow")
        native = xm.all_gather(operand())
        xm.all_reduce(xm.REDUCE_SUM, operand())
    found += [list(x.shape), list(native.shape)]
    torch_xla.sync()
    return found


def test_per_call():
    wanted = ["forbidden"] * 7 + [[8, 4], [32, 4]]
    assert worlds.run(4, per_call) == [wanted] * 4


def without_native_xor(rank):
    xm.reduce_scatter("xor", torch.ones(8, dtype=torch.int32, device=torch_xla.device()))


def warned(rank, function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            function(rank)
            torch_xla.sync()
    return [(str(w.message), w.category is FallbackWarning, w.filename) for w in caught]


def test_warns_once_for_each_op_device_and_reason():
    with worlds.World(2) as world:  # of its own: nothing was warned about yet
        # Filters are the process's, so one rank may see the warning of another.
        found = [w for rank in world.run(warned, without_native_xor) for w in rank if w[1]]
        assert len({text for text, _, _ in found}) == 1
        text, _, file = found[0]
        assert text.startswith("reduce_scatter(reduce_type=xor")
        assert "XLA:CPU" in text and "TORCH_XLA_CC_FALLBACK" in text
        assert "costs each rank 32 B instead of 16 B of results. You are told once" in text
        assert file == __file__
        assert [w for rank in world.run(warned, without_native_xor) for w in rank if w[1]] == []


def as_error(rank):
    warnings.simplefilter("error", FallbackWarning)  # for good: this process is the test's own
    xm.collective_broadcast([operand()])


def test_a_filter_may_make_it_an_error():
    with worlds.World(4) as world, pytest.raises(FallbackWarning, match="collective_broadcast"):
        world.run(as_error)


def counted(rank):
    torch_xla.sync()
    before = metrics.counter_value("xla_cc.fallback.all_to_all") or 0
    xm.all_to_all(operand(), 0, 0)
    xm.all_gather(operand())
    torch_xla.sync()
    report = metrics.metrics_report()
    return (metrics.counter_value("xla_cc.fallback.all_to_all") - before, "all_gather" in report)


def test_counted_in_the_metrics_report():
    found = worlds.run(4, counted)
    assert max(count for count, _ in found) >= 1
    assert "xla_cc.fallback.all_to_all" in worlds.run(4, report)[0]


def report(rank):
    return metrics.metrics_report()


def by_host(rank):
    if rank == 0:
        xm.send(operand(), 7)
    elif rank == 1:
        xm.recv(operand(), 7)


def recorded(rank):
    with torch_xla_cc.record() if rank == 0 else contextlib.nullcontext([]) as calls:
        xm.all_reduce(xm.REDUCE_SUM, operand()).cpu()
        by_host(rank)
        xm.all_reduce(xm.REDUCE_SUM, operand()).cpu()
    return [(call.op, call.rule, call.why, call.bytes) for call in calls]


def test_the_host_is_listed_and_warned_about():
    calls = worlds.run(2, recorded)[0]
    sent = next(call for call in calls if call[0] == "send")
    assert (sent[1], sent[3]) == ("host", 128)
    assert "names no ranks" in sent[2]
    with worlds.World(2) as world:
        found = [w for rank in world.run(warned, by_host) for w in rank if w[1]]
        assert {text.partition(" of ")[0] for text, _, _ in found} == {
            "send(channel=7)",
            "recv(channel=7)",
        }
        assert all("goes through the host" in text for text, _, _ in found)
        assert {file for _, _, file in found} == {__file__}


EXCHANGE = "all_to_all(split_dim=0, concat_dim=0, groups=world)"
SCATTER = "reduce_scatter(reduce_type=sum, scale=1, factor=1, dim=0, groups=world)"
SCATTERED = ("sum", 1.0, 1.0, 0, None, None)
HOW = [
    ("cpu", "all_to_all", 1, (0, 0, None, None), f"{EXCHANGE} fallback: ranks on threads"),
    ("tpu:v5e", "all_to_all", 1, (0, 0, None, None), f"{EXCHANGE} native"),
    ("tpu:v5e", "reduce_scatter", 2, SCATTERED, f"{SCATTER} native: one instruction for each"),
    ("gpu:h100", "reduce_scatter", 2, SCATTERED, f"{SCATTER} native"),
    ("gpu:h100", "send", 1, (7, [[0, 1]]), "send(channel=7, pairs=(0->1)) fallback: on GPUs"),
    ("tpu:v5e", "recv", 1, (7, [[0, 1]]), "recv(channel=7, pairs=(0->1)) fallback: the TPU"),
]


@pytest.mark.parametrize("row", HOW, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}")
def test_metadata_of_every_instruction_says_how(row):
    hlo = pytest.importorskip("torch_xla_cc._hlo.protobuf", reason="protobuf is not installed")
    target, op, operands, fields, how = row
    with lowering_for(target, 4):
        code = getattr(torch_xla_cc._C, f"lower_{op}")([(11, [8])] * operands, *fields)["bytes"]
    module = hlo.HloModuleProto.FromString(code)
    names = {
        instruction.metadata.op_name
        for computation in module.computations
        for instruction in computation.instructions
    }
    assert len(names) == 1 and names.pop().startswith(how)


def test_what_costs_nothing_more_is_no_offence():
    channel = xm.Channel([(0, 1)])
    with torch_xla_cc.fallback("error"), lowering_for("tpu:v5e:2x4"):
        x = torch.ones(8, device=torch_xla.device())
        xm.send(x, channel)
        xm.recv(x, channel)  # the pair is one collective_permute
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(8, dtype=torch.uint64, device=x.device))
        with pytest.raises(FallbackForbidden):
            xm.collective_broadcast([x])


def test_launch_passes_the_policy_on():
    program = (
        "import torch, torch_xla, torch_xla_cc\n"
        "from torch_xla_cc import xla_model as xm\n"
        "def f(rank):\n"
        "    x = torch.ones(4, device=torch_xla.device())\n"
        "    return xm.all_to_all(x, 0, 0).cpu()\n"
        "try:\n"
        "    with torch_xla_cc.fallback('error'):\n"
        "        torch_xla_cc.launch(f, nprocs=4)\n"
        "except torch_xla_cc.FallbackForbidden:\n"
        "    print('forbidden')\n"
    )
    assert forks.run_code(program).stdout.strip() == "forbidden"


def run(program, **environment):
    """In an interpreter that imports the package: it reads the environment then."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("value", ["allow", "error"])  # "warn" is what there is without it
def test_the_environment_sets_it(value):
    program = "import torch_xla_cc; print(torch_xla_cc._C.fallback())"
    assert run(program, TORCH_XLA_CC_FALLBACK=value).stdout.strip() == value


def test_a_wrong_environment_is_said():
    ended = run("import torch_xla_cc", TORCH_XLA_CC_FALLBACK="never")
    assert ended.returncode != 0
    message = "TORCH_XLA_CC_FALLBACK = 'never', but it must be one of 'allow', 'warn'"
    assert message in ended.stderr
    # And who asks what is wrong is told.
    doctor = "import sys, txcc; sys.argv = ['txcc', 'doctor', '--format=json']; txcc.main()"
    told = run(doctor, TORCH_XLA_CC_FALLBACK="never")
    assert told.returncode == 1 and message in told.stdout


@pytest.mark.parametrize("policy", ["never", None, 3, ["error"]])
def test_wrong_policies(policy):
    with pytest.raises(ValueError, match="policy"), torch_xla_cc.fallback(policy):
        pass


# supports, explain, register.


def test_supports():
    assert capabilities.supports("all_gather", "cpu")
    assert capabilities.supports("all_to_all", "tpu:v5e")
    assert capabilities.supports("all_to_all", "tpu:v5e:8x8")
    assert not capabilities.supports("all_to_all", "tpu:v5e:8x16")
    assert not capabilities.supports("all_to_all", "tpu:v5e:16x16")
    assert capabilities.supports("all_to_all", "tpu:v5e:16x16", groups="equal"), "of 16 chips"
    assert capabilities.supports("all_to_all", "tpu:v6e:16x16")
    assert not capabilities.supports("collective_broadcast", "tpu:v5p")
    assert capabilities.supports("collective_broadcast", "gpu:h100")
    assert not capabilities.supports("all_reduce", "cpu", torch.int32, reduce_type="xor")
    assert capabilities.supports("all_reduce", "cpu", torch.int32, reduce_type="average")
    assert not capabilities.supports("all_gather", "tpu:v5e", groups="unequal")
    assert not capabilities.supports("collective_permute", "cpu")
    assert capabilities.supports("all_to_all", "neuron")
    assert capabilities.supports("all_gather"), "of the running device"
    assert capabilities.supports("all_gather", torch_xla.device())


def test_explain():
    found = capabilities.explain("all_reduce", "cpu", torch.int32, reduce_type="xor")
    assert (found.rule, found.opcodes) == ("fallback", ("all-gather",))
    assert found.wire_bytes > found.native_wire_bytes > 0
    assert "XLA:CPU" in found.why
    assert found.ways and f"by: {found.ways[0]}" in str(found)
    text = str(found)
    assert "all_reduce by xor of int32 (world) on cpu" in text and "fallback" in text
    refused = capabilities.explain("all_gather", "tpu:v5e", torch.complex128)
    assert (refused.rule, refused.opcodes) == ("refused", ())
    slow = capabilities.explain("all_to_all", "tpu:v5e:16x16")
    assert (slow.rule, slow.opcodes) == ("fallback", ("all-to-all",) * 2)
    small = capabilities.explain("reduce_scatter", "tpu:v4")
    assert small.rule == "native" and "all-reduce" in small.becomes


def test_register():
    entry = capabilities.register("all_gather", "tpu:v5e", False, why="a bug of ours")
    try:
        found = capabilities.explain("all_gather", "tpu:v5e:2x4")
        assert (found.rule, found.why) == ("fallback", "a bug of ours")
        assert capabilities.supports("all_gather", "tpu:v6e")
        with capabilities.register("all_gather", "tpu", True, dtype=torch.float32):
            assert capabilities.supports("all_gather", "tpu:v5e")
            assert not capabilities.supports("all_gather", "tpu:v5e", torch.int8)
    finally:
        entry.unregister()
    assert capabilities.supports("all_gather", "tpu:v5e")


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ValueError, lambda: capabilities.supports("all_scatter", "cpu")),
        (ValueError, lambda: capabilities.supports("all_gather", "cpu", torch.qint8)),
        (ValueError, lambda: capabilities.supports("all_gather", "cpu", "f32")),
        (ValueError, lambda: capabilities.supports("all_gather", "")),
        (ValueError, lambda: capabilities.supports("all_gather", "tpu:v5e:0x4")),
        (TypeError, lambda: capabilities.supports("all_gather", 5)),
        (ValueError, lambda: capabilities.supports("all_gather", "cpu", groups="ring")),
        (ValueError, lambda: capabilities.supports("all_reduce", "cpu", reduce_type="mean")),
        (ValueError, lambda: capabilities.register("all_gather", "tpu:v5e:2x4", True)),
        (ValueError, lambda: capabilities.register("all_gather", "", True)),
        (TypeError, lambda: capabilities.register("all_gather", "cpu", "yes")),
        (TypeError, lambda: capabilities.register("all_gather", "cpu", True, why=3)),
        (ValueError, lambda: capabilities.register("all_gather", "cpu", True, dtype=3)),
    ],
)
def test_wrong_questions(error, call):
    with pytest.raises(error):
        call()
