"""What xla_model traces through torch_xla becomes on a TPU, by its real compiler.

"Native" means: one instruction of the collective's own opcode in the optimised program, and no
elementwise pass over the tensor before it.
"""

import forks
import pytest

pytest.importorskip("libtpu", reason="pip install 'torch_xla_cc[aot]' brings the compiler")

TARGET = "tpu:v5e:2x4"
HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]
STRIDED = [[0, 2, 4, 6], [1, 3, 5, 7]]
RING = [[rank, (rank + 1) % 8] for rank in range(8)]

# name: (expression of x, the opcodes in the optimised program)
FORMS = {
    "all_gather": ("xm.all_gather(x)", ["all-gather"]),
    "all_gather dim 1": ("xm.all_gather(x, 1)", ["all-gather"]),
    "all_gather halves": (f"xm.all_gather(x, groups={HALVES})", ["all-gather"]),
    "all_gather strided": (f"xm.all_gather(x, groups={STRIDED})", ["all-gather"]),
    "all_gather dim 1 strided": (f"xm.all_gather(x, 1, {STRIDED})", ["all-gather"]),
    "reduce_scatter": ("xm.reduce_scatter('sum', x)", ["reduce-scatter"]),
    "reduce_scatter dim 1": ("xm.reduce_scatter('sum', wide, 1.0, 1)", ["reduce-scatter"]),
    "reduce_scatter halves": (f"xm.reduce_scatter('sum', x, groups={HALVES})", ["reduce-scatter"]),
    "reduce_scatter strided": (
        f"xm.reduce_scatter('sum', wide, 1.0, 1, groups={STRIDED})",
        ["reduce-scatter"],
    ),
    "all_reduce": ("xm.all_reduce('sum', x)", ["all-reduce"]),
    "all_reduce max": ("xm.all_reduce('max', x)", ["all-reduce"]),
    "all_reduce average": ("xm.all_reduce('average', x, 0.5)", ["all-reduce"]),
    "all_reduce halves": (f"xm.all_reduce('sum', x, groups={HALVES})", ["all-reduce"]),
    "all_reduce strided": (f"xm.all_reduce('sum', x, groups={STRIDED})", ["all-reduce"]),
    "collective_permute": (f"xm.collective_permute(x, {RING})", ["collective-permute"]),
    "collective_permute of some": (
        "xm.collective_permute(x, [[3, 0], [5, 7]])",
        ["collective-permute"],
    ),
    "all_to_all": ("xm.all_to_all(x, 0, 0, 8)", ["all-to-all"]),
    "all_to_all from 0 to 1": ("xm.all_to_all(x, 0, 1)", ["all-to-all"]),
    "all_to_all halves": (f"xm.all_to_all(x, 0, 0, groups={HALVES})", ["all-to-all"]),
    "all_to_all strided": (f"xm.all_to_all(x, 0, 0, groups={STRIDED})", ["all-to-all"]),
    # Lists: the compiler takes a gather of several apart again, and keeps a reduction whole.
    "all_gather list": ("xm.all_gather([x, y])", ["all-gather"] * 2),
    "all_reduce list": ("_C.all_reduce([x, y], 'sum', 1.0, 1.0, None)", ["all-reduce"]),
    "reduce_scatter list": ("xm.reduce_scatter('sum', [x, y])", ["reduce-scatter"] * 2),
    "all_to_all list": ("xm.all_to_all([x, y], 0, 0)", ["all-to-all"] * 2),
    "collective_permute list": (
        f"xm.collective_permute([x, y], {RING})",
        ["collective-permute"] * 2,
    ),
    # Fallbacks of lowering/capability/.
    "collective_broadcast": ("_C.collective_broadcast(x, 3, None)", ["all-reduce"]),
    "send and recv": ("through(x)", ["collective-permute"]),
}

# A process with one CPU device and no ranks: the tests of ranks have processes of their own.
SCRIPT = f"""
import sys
import torch, torch_xla, torch_xla_cc
from torch_xla_cc import _C, _aot, xla_model as xm

def through(x):
    ring = xm.Channel({RING})
    xm.send(x, ring)
    return xm.recv(x, ring)

names, modules = [], []
for dtype in (torch.float32, torch.bfloat16):
    shapes = [(1024, 128), (2048, 128), (1024, 4096)]
    x, y, wide = (torch.zeros(s, dtype=dtype).to(torch_xla.device()) for s in shapes)
    for name, expression in eval(sys.argv[1]).items():
        with torch_xla_cc.lowering_for({TARGET!r}):
            out = eval(expression)
        out = out if isinstance(out, list) else [out]
        names.append((name, str(dtype)))
        modules.append(torch_xla._XLAC._get_xla_tensors_hlo_proto(out))
for (name, dtype), program in zip(names, _aot.compile_many(modules, {TARGET!r})):
    found = _aot.collectives(program)
    before = [[i.opcode for i in _aot.elementwise_before(program, one)] for one in found]
    print(repr((name, dtype, [one.opcode for one in found], before)))
"""


@pytest.fixture(scope="module")
def compiled():
    forms = {name: expression for name, (expression, _) in FORMS.items()}
    done = forks.run_code(SCRIPT, repr(forms), timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [eval(line) for line in done.stdout.splitlines() if line.startswith("(")]
    return {(name, dtype): (opcodes, before) for name, dtype, opcodes, before in rows}


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16"])
@pytest.mark.parametrize("name", FORMS)
def test_one_native_instruction(compiled, name, dtype):
    opcodes, before = compiled[name, dtype]
    assert opcodes == FORMS[name][1]
    # A broadcast masks what the ranks but the root give: that pass is its fallback's.
    assert not any(before) or name == "collective_broadcast"
