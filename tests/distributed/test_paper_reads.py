"""`txcc inspect --rank` of steps that read: each read ends a program, and the step goes on."""

import json
import os

import forks
import pytest

SCRIPT = """
import sys
import torch
import torch.distributed as dist
import torch_xla
import torch_xla_cc.distributed

dist.init_process_group("xla_cc")
device = torch_xla.device()
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))
model = model.to(device)
x = torch.ones(4, 8).to(device)
for step in range(3):
    y = model(x)
    dist.all_reduce(y)
    loss = y.square().mean()
    if not torch.isfinite(loss):  # line 17, within the forward pass
        raise SystemExit("not finite")
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    vector, far = torch.ones(8, device=device), 1.0
    while far > 1e-3:
        product = model[2].weight @ model[2].weight.t() @ vector
        dist.all_reduce(product)
        product = product / product.norm()
        far = (product - vector).norm().item()  # line 27
        vector = product
        print("round", step, far)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
    torch_xla.sync()
    print("end", step)
"""

FOREVER = """
import torch
import torch.distributed as dist
import torch_xla
import torch_xla_cc.distributed

dist.init_process_group("xla_cc")
for step in range(2):
    x = torch.full((), float(step), device=torch_xla.device())
    dist.all_reduce(x)
    while step and x.item() >= 0:
        dist.all_reduce(x, dist.ReduceOp.MAX)
    torch_xla.sync()
"""


def inspected(path, *options):
    env = {**os.environ, "TORCH_XLA_CC_FALLBACK": "allow"}
    return forks.txcc("inspect", "--rank=3", *options, path, env=env, timeout=200)


@pytest.mark.parametrize("target", ["tpu:v5e:2x4", "gpu:h100x8", "cpu"])
def test_programs_of_a_step(tmp_path, target):
    if target == "tpu:v5e:2x4":
        pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")
    if target == "gpu:h100x8":
        pytest.importorskip("jax_plugins.xla_cuda12", reason="pip install 'torch_xla_cc[aot-gpu]'")
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    options = ["--ranks=8"] if target == "cpu" else []
    done = inspected(path, f"--target={target}", "--format=json", *options)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "The step reads at script.py:17, script.py:27" in done.stderr
    assert "as if every rank had passed what this one did" in done.stderr
    assert done.stderr.count("end ") == 1  # the second step is the one that is traced
    rounds = done.stderr.count("round 1 ")
    assert rounds > 3
    one, two, three, last = json.loads(done.stdout)
    assert [report["times"] for report in (one, two, three, last)] == [1, 1, rounds - 1, 1]
    traced = [report["summary"]["traced"] for report in (one, two, three, last)]
    assert traced == [1, 5, 1, 0]  # what autograd has kept of the first is not gathered again
    assert one["module"].endswith("program 1 of 4, up to the read at script.py:17")
    assert last["module"].endswith("program 4 of 4")
    assert {row["rule"] for report in (one, two, three) for row in report["rows"]} == {"native"}


def test_a_loop_without_end(tmp_path):
    """It is an error that names the read."""
    path = tmp_path / "script.py"
    path.write_text(FOREVER)
    done = inspected(path, "--target=cpu", "--ranks=4")
    assert done.returncode == 1
    assert "it has read 1,000 times" in done.stderr and "script.py:11" in done.stderr
    assert "as if every rank had passed what this one does" in done.stderr
