"""`txcc inspect SCRIPT`: scripts that run on virtual devices up to a step."""

import json
import os
import re
from collections import Counter
from pathlib import Path

import forks
import pytest

ROOT = Path(__file__).parents[2]
TPU = "tpu:v5e:2x2"

TORCHRUN = """
import os
import sys

import torch
import torch.distributed as dist
import torch_xla
import torch_xla_cc.distributed

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("xla_cc")
assert (rank, world) == (dist.get_rank(), dist.get_world_size())
assert sys.argv[1:] == ["--layers", "2"], sys.argv
model = torch.nn.Linear(8, 8).to(torch_xla.device())
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
torch_xla.sync()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8, device=torch_xla.device())).sum()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    torch_xla.sync()
    print("rank", rank, "step", step, loss.item())
"""

LAUNCHES = """
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
from torch_xla._internal import pjrt

def main(index, size):
    x = torch.ones(size, device=torch_xla.device())
    for _ in range(2):
        x = xm.all_gather(x)
        torch_xla.sync()

if __name__ == "__main__":
    {launch}
    raise SystemExit("not reached")
"""

BY_RANK = """
import torch
import torch_xla
import torch_xla_cc
from torch_xla_cc import xla_model as xm

def main(rank):
    x = torch.ones(4, device=torch_xla.device())
    if rank == 1:
        x = xm.all_reduce("max", x)
    return xm.all_reduce("sum", x)

torch_xla_cc.launch(main, (), 2)
"""


# Its flags have names of the command's own.
WITH_FLAGS = """
import sys
import torch
import torch_xla
import torch_xla_cc
from absl import app, flags
from torch_xla_cc import xla_model as xm

flags.DEFINE_string("format", "png", "")
flags.DEFINE_string("dump", "", "")

def main(rank):
    return xm.all_reduce("sum", torch.ones(4, device=torch_xla.device()))

def launched(words):
    print(words, flags.FLAGS.format, flags.FLAGS.dump)
    torch_xla_cc.launch(main, (), 2)

app.run(launched)
"""


def txcc(*arguments, **environment):
    return forks.txcc("inspect", *arguments, env=os.environ | environment)


def rows(done):
    (report,) = json.loads(done.stdout)
    return report["rows"]


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


def test_the_demo():
    demo = ROOT / "examples" / "demo.py"
    done = txcc("--format=json", f"--target={TPU}", "--step=2", demo, "--", "--steps=3")
    assert done.returncode == 0, done.stderr
    assert f"4 ranks for {TPU}: one program" in done.stderr
    found = rows(done)
    assert Counter((*row["before"], row["after"]) for row in found) == {
        ("all-gather", "all-gather"): 4,
        ("reduce-scatter", "reduce-scatter"): 4,
        ("all-reduce", "all-reduce"): 2,
    }
    assert {Path(row["file"]).name for row in found} == {"tensor_parallel.py", "demo.py"}


def cells(table):
    lines = [[cell.strip() for cell in line.split("│")] for line in table.splitlines()]
    return [line for line in lines if len(line) > 1]


def test_the_document_shows_what_it_prints():
    document = (ROOT / "docs" / "inspect.md").read_text()
    command, _, after = document.partition("\n    txcc inspect ")[2].partition("\n")
    shown = after.partition("```text\n")[2].partition("```")[0]
    options, _, rest = command.partition(" examples/")
    done = txcc(*options.split(), *f"{ROOT}/examples/{rest}".split())
    assert done.returncode == 0, done.stderr
    assert sum(bool(line[1]) for line in cells(shown)) == 10  # some rows take two lines
    assert cells(shown) == cells(done.stdout)
    # Above and below the table, however the lines are broken.
    for one in (0, 2):
        assert re.split("[┏┘]", shown)[one].split() == re.split("[┏┘]", done.stdout)[one].split()


@pytest.mark.parametrize("step", [1, 2])
def test_a_script_of_torchrun(script, step):
    path = script(TORCHRUN)
    done = txcc("--ranks=2", f"--step={step}", "--format=json", path, "--", "--layers", "2")
    assert done.returncode == 0, done.stderr
    found = rows(done)
    assert {row["operands"][0].partition("[")[2] for row in found} == {"8]", "8,8]"}
    line = "broadcast" if step == 1 else "all_reduce"
    lines = {TORCHRUN.splitlines()[row["line"] - 1].strip() for row in found}
    assert all(text.startswith(f"dist.{line}(") for text in lines), lines


def test_its_steps_before_run(script):
    done = txcc("--ranks=2", "--step=4", script(TORCHRUN), "--", "--layers", "2")
    assert done.returncode == 0, done.stderr
    assert "rank 1 step 1" in done.stderr and "rank 1 step 2" not in done.stderr
    assert "rank 1 step" not in done.stdout


SWALLOWED = """try:
        torch_xla.launch(main, args=(4,))
    except BaseException:
        pass"""


@pytest.mark.parametrize(
    "launch",
    [
        "torch_xla.launch(main, args=(4,))",
        "xmp.spawn(main, args=(4,))",
        "pjrt.spawn_threads(main, (4,))",
        SWALLOWED,
    ],
)
def test_functions_that_launch(script, launch):
    path = script(LAUNCHES.format(launch=launch))
    done = txcc("--step=2", "--format=json", path, CPU_NUM_DEVICES="2")
    assert done.returncode == 0, done.stderr
    assert [(row["after"], row["operands"]) for row in rows(done)] == [("all-gather", ["f32[8]"])]
    done = txcc(f"--target={TPU}", "--format=html", path)
    assert done.returncode == 0, done.stderr
    assert f"<title>script.py, step 1 for {TPU}</title>" in done.stdout


def test_flags_of_the_script(script):
    path = script(WITH_FLAGS)
    done = txcc("--format=json", path, "--", "--dump=x", "--format=gif", "word")
    assert done.returncode == 0, done.stderr
    assert f"['{path}', 'word'] gif x" in done.stderr
    assert [row["after"] for row in rows(done)] == ["all-reduce"]


def test_ranks_that_differ(script):
    path = script(BY_RANK)
    done = txcc(path)
    assert done.returncode == 1
    assert "2 ranks for cpu: collective 0 differs. rank 0: all_reduce(reduce_type=sum" in (
        done.stdout
    )
    assert f"{path}:11; rank 1: all_reduce(reduce_type=max" in done.stdout


# Prints what each of the calls in argv, as JSON, raises.
FAILURES = """
import json, sys
from torch_xla_cc._inspect import script

raised = []
for path, target, ranks, step in json.loads(sys.argv.pop()):
    try:
        script.programs(path, [], target, ranks, step)
        raised.append("")
    except Exception as error:
        notes = getattr(error, "__notes__", [])
        raised.append(" ".join([type(error).__name__, str(error), *notes]))
print(json.dumps(raised))
"""


def test_failures(tmp_path):
    cases = [
        (TORCHRUN, "cpu", None, 1, "KeyError 'RANK' It has launched no ranks. If it is to be"),
        (TORCHRUN, "cpu", 2, 1, "AssertionError ['"),  # its arguments are not there
        ("x = 1", "cpu", None, 1, "the script has ended. It has launched no ranks"),
        ("x = 1", "cpu", 2, 2, "rank 0 has ended after 0 steps with collectives, but step = 2"),
        ("raise SystemExit(3)", "cpu", 2, 1, "the script has ended with 3"),
        (BY_RANK.replace("    x =", "    exit(3)\n    x =", 1), "cpu", None, 1, "has ended with 3"),
        ("x = ", "cpu", None, 1, "6.py:1: invalid syntax"),
        (BY_RANK, "tpu:v9:2x2", None, 1, "tpu:v9"),
        (BY_RANK, TPU, None, 1, f"nprocs = 2, but target = '{TPU}' has 4 devices"),
    ]
    calls = []
    for number, (text, *options, _) in enumerate(cases):
        path = tmp_path / f"{number}.py"
        path.write_text(text)
        calls.append([str(path), *options])
    done = forks.run_code(FAILURES, json.dumps(calls))
    assert done.returncode == 0, done.stderr
    raised = json.loads(done.stdout)
    for found, (*_, message) in zip(raised, cases, strict=True):
        assert message in found


def test_a_command_that_is_wrong(tmp_path):
    done = txcc(tmp_path / "none.py")
    assert done.returncode == 1 and "No such file" in done.stderr
    assert txcc("--dump=x", "script.py").returncode == 2
    done = txcc("--ranks=0", "script.py")
    assert done.returncode == 2 and "'--ranks': 0" in done.stderr
    assert "'txcc inspect --help'" in done.stderr
    for options, said in [
        ("--rank=0", "Give --ranks"),
        ("--rank=9 --ranks=2", "--rank = 9, but there are 2 ranks"),
        (f"--ranks=3 --target={TPU}", f"--ranks = 3, but --target = '{TPU}' has 4 devices"),
    ]:
        done = txcc(*options.split(), "script.py")
        assert done.returncode == 2 and said in done.stderr, done.stderr


ANNOTATED = """
import sys
import torch
import torch_xla
import torch_xla_cc
from torch_xla_cc import xla_model as xm

def typed(x: int):
    return x

assert typed.__annotations__["x"] is int, "as another script's `from __future__` would have it"

def main(rank):
    x = torch.ones(4, device=torch_xla.device())
    if "calls" in sys.argv:
        x = xm.all_reduce("sum", x)
    if "raises" in sys.argv:
        raise ValueError("of the script")
    return x

torch_xla_cc.launch(main, (), 2)
"""


def test_a_script_runs_as_it_does_by_itself(tmp_path):
    path = tmp_path / "typed.py"
    path.write_text(ANNOTATED)
    done = txcc(path, "calls")
    assert done.returncode == 0, done.stderr
    done = txcc(path, "calls", "raises")
    assert done.returncode == 1
    assert 'raise ValueError("of the script")' in done.stderr, "its lines are told"
    done = txcc(path)
    assert done.returncode == 1 and "typed.py, step 1: no collective is in it" in done.stderr


def test_doctor_names_what_to_install():
    code = "import sys; sys.modules['libtpu'] = None; import txcc; txcc.main()"
    done = forks.run_code(code, "doctor")
    assert done.returncode == 0, done.stderr
    assert "pip install 'torch_xla_cc[aot]'" in " ".join(done.stdout.split())


def test_doctor_finds_wrong_variables():
    wrong = {
        "CPU_NUM_DEVICES": "x",
        "XLA_THREAD_POOL_SIZE": "y",
        "WORLD_SIZE": "z",
    }
    done = forks.txcc("doctor", "--format=json", env={**os.environ, "PJRT_DEVICE": "CPU", **wrong})
    assert done.returncode == 1, done.stderr
    found = [one["found"] for one in json.loads(done.stdout) if not one["well"]]
    for name, text in wrong.items():
        assert any(one.startswith(f"{name} = '{text}', but it must be") for one in found)
    wrong = {"PJRT_DEVICE": "bogus", "TORCH_XLA_CC_CALLS": "often"}
    done = forks.txcc("doctor", "--format=json", env={**os.environ, **wrong})
    assert done.returncode == 1
    assert "TORCH_XLA_CC_CALLS = 'often', but it must be one of" in done.stdout
    assert "PJRT_DEVICE = 'bogus', and no plugin of torch_xla has that name" in done.stdout
