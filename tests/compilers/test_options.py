"""Options of compilers by name: what they change, and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch_xla

import torch_xla_cc
from torch_xla_cc import xla_model as xm

pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")

ROOT = Path(__file__).parents[2]
V5E, GPU = "tpu:v5e:2x4", "gpu:h100x8"
EXCHANGE = "xla_tpu_enable_async_all_to_all"


def step():
    x = torch.ones(64, 512, device=torch_xla.device())
    return xm.all_to_all(x, 0, 0)


def shift():
    x = torch.ones(512, 512, device=torch_xla.device())
    return xm.collective_permute(x, [(rank, (rank + 1) % 8) for rank in range(8)]), x @ x


def test_an_option_is_the_compilers():
    found = {}
    for value in (None, False, "false", "disabled"):
        options = {} if value is None else {"xla_enable_async_collective_permute": value}
        report = torch_xla_cc.assert_lowers_to(
            shift, "collective-permute", target=V5E, options=options
        )
        found[value] = [row.asynchronous for row in report.rows]
    assert found == {None: [True], False: [False], "false": [False], "disabled": [False]}


def test_options_of_the_cpu_and_of_a_gpu():
    torch_xla_cc.assert_no_copy(
        lambda: xm.all_reduce("sum", torch.ones(4, device=torch_xla.device())),
        target="cpu",
        world_size=2,
        options={"xla_cpu_enable_fast_math": True},
    )
    pytest.importorskip("jax_plugins.xla_cuda12", reason="pip install 'torch_xla_cc[aot-gpu]'")
    for options in (
        {"xla_gpu_enable_command_buffer": ""},
        {"xla_gpu_all_gather_combine_threshold_bytes": 0},
    ):
        assert not torch_xla_cc.inspect(step, target=GPU, options=options).failure


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (
            V5E,
            {"xla_tpu_no_such": 1},
            "xla_tpu_no_such = '1' is refused by the compiler for 'tpu:v5e",
        ),
        (V5E, {EXCHANGE: "maybe"}, f"{EXCHANGE} = 'maybe' is refused"),
        (V5E, {"xla_gpu_autotune_level": 0}, "xla_gpu_autotune_level, which is for GPU"),
        (V5E, {"--" + EXCHANGE: 1}, "must be one of the compiler's, without dashes"),
        (V5E, {"xla_dump_to": "/tmp"}, "has xla_dump_to, but the program is read"),
        ("cpu", {EXCHANGE: True}, f"{EXCHANGE}, which is for TPU, but the target is 'cpu'"),
        ("cpu", {"xla_cpu_no_such": 1}, "xla_cpu_no_such = '1' is refused"),
        ("cpu", {"xla_cpu_use_thunk_runtime": 2.5}, "runtime = '2.5' is refused by the compiler"),
        ("cpu", {"xla_cpu_prefer_vector_width": "1 2"}, "must have no spaces"),
    ],
    ids=str,
)
def test_what_a_compiler_does_not_take(target, options, message):
    with pytest.raises(ValueError, match=message):
        torch_xla_cc.inspect(step, target=target, world_size=8, options=options)


def test_the_type_of_a_value():
    with pytest.raises(TypeError, match=f"{EXCHANGE} is list"):
        torch_xla_cc.inspect(step, target=V5E, options={EXCHANGE: [True]})


def test_a_gpu_refuses_too():
    pytest.importorskip("jax_plugins.xla_cuda12", reason="pip install 'torch_xla_cc[aot-gpu]'")
    for options in ({"xla_gpu_no_such": 1}, {"xla_gpu_autotune_level": "high"}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} = .* is refused"):
            torch_xla_cc.inspect(step, target=GPU, options=options)


def test_on_the_command_line():
    made = subprocess.run(
        [sys.executable, "-m", "txcc", "inspect", "--option=no_value", "x.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert made.returncode == 2
    assert "'--option': 'no_value', but it must be NAME=VALUE" in made.stderr
