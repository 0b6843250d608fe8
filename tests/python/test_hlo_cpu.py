"""What a call becomes on XLA:CPU with 4 threads: read from the program that XLA dumps."""

import re

import pytest
import tokens
import torch
import torch_xla
import worlds

import torch_xla_cc
from torch_xla_cc import Channel
from torch_xla_cc import xla_model as xm

HALVES = [[0, 1], [2, 3]]
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
F8 = torch.float8_e5m2


def send_and_receive(x):
    channel = Channel(RING)
    xm.send(x, channel)
    return xm.recv(x, channel)


def broadcast(x):
    tensors = [x + 0.5]
    xm.collective_broadcast(tensors, 2)
    return tensors


# name: (function of f32[4,8], the collectives in the program as (opcode, operands))
CASES = {
    "all_gather": (lambda x: xm.all_gather(x), [("all-gather", 1)]),
    "all_gather dim 1": (lambda x: xm.all_gather(x, 1, HALVES), [("all-gather", 1)]),
    "all_gather after arithmetic": (lambda x: xm.all_gather(x * 2 + 1) - 3, [("all-gather", 1)]),
    "all_gather list": (lambda x: xm.all_gather([x, x[0], x * 2]), [("all-gather", 3)]),
    "all_gather mixed list": (
        lambda x: xm.all_gather([x, x.bfloat16(), x * 2]),
        [("all-gather", 2), ("all-gather", 1)],
    ),
    "all_gather partly empty list": (
        lambda x: xm.all_gather([x[:0], x, x[:, :0]]),
        [("all-gather", 1)],
    ),
    "all_reduce": (lambda x: xm.all_reduce("sum", x), [("all-reduce", 1)]),
    "all_reduce scaled": (lambda x: xm.all_reduce("max", x, 0.5), [("all-reduce", 1)]),
    "all_reduce average": (
        lambda x: xm.all_reduce("average", x.bfloat16(), groups=[[0, 1, 2], [3]]),
        [("all-reduce", 1)],
    ),
    # capability.cc: XLA:CPU takes no list with a channel.
    "all_reduce list": (lambda x: xm.all_reduce("sum", [x, x * 2]), [("all-reduce", 1)] * 2),
    "reduce_scatter": (lambda x: xm.reduce_scatter("sum", x), [("reduce-scatter", 1)]),
    "reduce_scatter dim 1": (
        lambda x: xm.reduce_scatter("mul", x, 2.0, 1, 2, HALVES),
        [("reduce-scatter", 1)],
    ),
    "reduce_scatter list": (
        lambda x: xm.reduce_scatter("sum", [x, x * 2]),
        [("reduce-scatter", 2)],
    ),
    # Fallbacks: one other collective each.
    "collective_permute": (lambda x: xm.collective_permute(x, RING), [("all-gather", 1)] * 2),
    "send and recv": (send_and_receive, [("all-gather", 1)] * 2),
    "all_to_all": (lambda x: xm.all_to_all(x, 0, 1), [("all-gather", 1)]),
    "collective_broadcast": (broadcast, [("all-reduce", 1)]),
    "xor": (lambda x: xm.all_reduce("xor", x.int()), [("all-gather", 1)]),
    "float8": (lambda x: xm.all_reduce("sum", x.to(F8)), [("all-reduce", 1)]),
    "empty": (lambda x: xm.all_gather(x[:0]), []),
}
COLLECTIVE = re.compile(
    r"= (?:\(.*?\)|\S+) (all-gather|all-reduce|reduce-scatter|all-to-all|collective-\w+|send|recv)"
    r"(?:-start)?\(([^)]*)\)(.*)"
)


def run_alone(rank, name):
    x = torch.arange(32.0).reshape(4, 8).to(torch_xla.device())
    # One more operation, so that there is a program also where nothing else is left.
    kept = [CASES[name][0](x), x - 7]
    torch_xla.sync()
    del kept


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The optimised program of each case, by name."""
    folder = tmp_path_factory.mktemp("dump")
    found = {}
    with worlds.World(4, env={"XLA_FLAGS": f"--xla_dump_to={folder}"}) as world:
        for name in CASES:
            world.run(run_alone, name)
            # All that were compiled, for whichever ranks; how many is test_ordering.py's concern.
            texts = [file.read_text() for file in folder.glob("*cpu_after_optimizations.txt")]
            assert len({str(COLLECTIVE.findall(text)) for text in texts}) == 1
            found[name] = texts[0]
            for file in folder.iterdir():
                file.unlink()
    return found


@pytest.mark.parametrize("name", CASES)
def test_collectives_in_the_optimised_program(programs, name):
    _, wanted = CASES[name]
    text = programs[name]
    found = COLLECTIVE.findall(text)
    assert [(opcode, operands.count("%")) for opcode, operands, _ in found] == wanted
    for _, _, attributes in found:
        assert "channel_id=" in attributes
        assert "use_global_device_ids=true" in attributes
        assert "constrain_layout" not in attributes
    assert "replica_count=4" in text

    assert tokens.collectives(text) == len(wanted) and not tokens.unordered(text)


@pytest.mark.parametrize(
    ("name", "op_type", "op_name"),
    [
        ("all_gather", "xla_cc.all_gather", "all_gather(dim=0, groups=world)"),
        ("all_gather dim 1", "xla_cc.all_gather", "all_gather(dim=1, groups=[[0,1],[2,3]])"),
        (
            "reduce_scatter",
            "xla_cc.reduce_scatter",
            "reduce_scatter(reduce_type=sum, scale=1, factor=1, dim=0, groups=world)",
        ),
        ("collective_broadcast", "xla_cc.collective_broadcast", "collective_broadcast(root=2"),
    ],
)
def test_instructions_name_the_call(programs, name, op_type, op_name):
    [(_, _, attributes)] = COLLECTIVE.findall(programs[name])
    assert f'op_type="{op_type}"' in attributes
    assert f'op_name="{op_name}' in attributes
    assert "source_" not in attributes


def call_in_debug_mode(rank):
    torch_xla_cc.set_debug(True)
    x = torch.arange(32.0).reshape(4, 8).to(torch_xla.device())
    kept = [xm.all_gather(x), xm.all_reduce("sum", x)]
    torch_xla.sync()
    kept.append(xm.all_gather(x))
    torch_xla.sync()
    del kept


def test_debug_mode_names_file_and_line(tmp_path):
    with worlds.World(4, env={"XLA_FLAGS": f"--xla_dump_to={tmp_path}"}) as world:
        world.run(call_in_debug_mode)
    first = call_in_debug_mode.__code__.co_firstlineno
    lines = []
    for file in sorted(tmp_path.glob("*cpu_after_optimizations.txt")):
        for opcode, _, attributes in COLLECTIVE.findall(file.read_text()):
            assert f'source_file="{__file__}"' in attributes
            [line] = re.findall(r"source_line=(\d+)", attributes)
            lines.append((opcode, int(line) - first))
    assert lines == [("all-gather", 3), ("all-reduce", 3), ("all-gather", 5)]
