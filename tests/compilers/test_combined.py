"""Reports of what the compilers of TPUs and GPUs make of programs: fusions, overlap, combining."""

import pytest
import test_aot
import torch
import torch_xla
from test_aot import INSTALL, V5E, needs_libtpu
from test_aot_gpu import H100, needs_plugin
from torch_xla.experimental.scan import scan

import torch_xla_cc
from torch_xla_cc import _aot
from torch_xla_cc import xla_model as xm
from torch_xla_cc._hlo import text
from torch_xla_cc._hlo.collectives import finder
from torch_xla_cc._inspect import trace

V4 = "tpu:v4:2x2x2"
RING = [[rank, (rank + 1) % 8] for rank in range(8)]


def tensors(count, *shape, dtype=torch.float32):
    made = [torch.zeros(shape, dtype=dtype, device=torch_xla.device()) for _ in range(count)]
    torch_xla.sync()
    return made


@pytest.fixture(scope="module")
def forward():
    """Of four layers, each of which gathers its weights: FSDP."""
    (x,) = tensors(1, 1024, 2048, dtype=torch.bfloat16)
    weights = tensors(4, 256, 2048, dtype=torch.bfloat16)

    def step():
        y = x
        for weight in weights:
            y = (y @ xm.all_gather(weight)).relu()
        return y

    return step


@needs_libtpu
# The first has nothing to run beside it; v6e takes two along.
@pytest.mark.parametrize(("target", "overlapped"), [(V5E, 3), ("tpu:v6e:2x4", 2)])
def test_gathers_beside_matmuls(forward, target, overlapped):
    report = torch_xla_cc.assert_overlaps(
        forward, opcode="all-gather", count=overlapped, target=target
    )
    line = f"test_combined.py:{forward.__code__.co_firstlineno + 3}"
    made = report.summary
    assert (made.traced, made.kept, made.instructions) == (4, 4, 4)
    assert (made.overlapped, made.waits) == (overlapped, 4 - overlapped)
    assert made.link_bytes == made.fewest_link_bytes
    assert made.link_bytes == pytest.approx(sum(row.link_bytes for row in report.rows), abs=2)
    beside = {one for row in report.rows for one in row.meanwhile}
    assert beside == {f"fusion (convolution) of {line}"}
    assert [row.operands for row in report.rows] == [("bf16[256,2048]",)] * 4


@needs_libtpu
def test_which_of_them_waits(forward):
    with pytest.raises(AssertionError) as error:
        torch_xla_cc.assert_overlaps(forward, opcode="all-gather", target=V5E)
    says = str(error.value)
    assert "all-gather: expected 4 beside a computation, found 3 of 4" in says
    assert says.count(f"of test_combined.py:{forward.__code__.co_firstlineno + 3} waits") == 1


@needs_libtpu
@pytest.mark.parametrize("target", [V5E, "tpu:v6e:2x4"])
def test_what_a_chain_hands_on_is_not_computed(target):
    """Its fusions take and give all of the gather's buffers, beside a matmul of 33 KB."""
    (weight,) = tensors(1, 256, 2048, dtype=torch.bfloat16)
    (x,) = tensors(1, 1024, 8, dtype=torch.bfloat16)
    (y,) = tensors(1, 8, 8, dtype=torch.bfloat16)
    step = lambda: (xm.all_gather(weight) * 2, (x @ y).relu())  # noqa: E731
    (row,) = torch_xla_cc.inspect(step, target=target).rows
    assert row.meanwhile and not row.overlaps
    matmul = 2 * (1024 * 8 + 8 * 8 + 1024 * 8)
    assert matmul <= row.beside_bytes < matmul + 100  # flags


@needs_libtpu
def test_large_ones_of_a_list_are_kept_on_a_pod():
    x, y = tensors(2, 1024, 1024, dtype=torch.bfloat16)
    report = torch_xla_cc.assert_lowers_to(
        xm.all_gather, {"all-gather": 2}, [x, y], dim=0, target="tpu:v5e:8x8"
    )
    made = report.summary
    assert (made.kept, made.gone, made.link_bytes) == (2, 0, made.fewest_link_bytes)


@needs_libtpu
def test_text_says_the_same_of_a_schedule(forward):
    pytest.importorskip("jaxlib", reason=f"jaxlib is not installed: {INSTALL}")
    program = _aot.compile_hlo(trace.of_call("forward", forward, V5E, None).module, V5E)

    def overlaps(computations):
        found = finder(computations).found()
        return [(one.name, one.last.name, [m.name for m in one.meanwhile]) for one in found]

    read = overlaps(text.Reader(program.text().splitlines()).computations())
    assert read == overlaps(program.computations())
    assert sum(bool(meanwhile) for *_, meanwhile in read) == 3


def permute_beside_a_matmul(rows):
    (x,) = tensors(1, 4096, 1024)
    (y,) = tensors(1, rows, 2048, dtype=torch.bfloat16)
    return lambda: (xm.collective_permute(x, RING) + 1, y @ y.t())


@needs_libtpu
def test_a_permute_beside_a_matmul():
    # 1024 rows read and write 6 MB while 17 MB come, but what they multiply takes its time.
    for rows in (1024, 4096):
        torch_xla_cc.assert_overlaps(
            permute_beside_a_matmul(rows), opcode="collective-permute", target=V5E
        )


@needs_libtpu
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_slice_of_much_is_little(dynamic):
    """It would be more than what comes if all that it may read did count."""
    x, much = tensors(1, 4096, 1024) + tensors(1, 64, 1024, 1024)
    (at,) = tensors(1, dtype=torch.int32)

    def step():
        part = much.index_select(0, at.reshape(1))[0] if dynamic else much[5]
        return xm.collective_permute(x, RING) + 1, (part * 3).sin()

    (row,) = torch_xla_cc.inspect(step, target=V5E).rows
    assert row.meanwhile and not row.overlaps
    assert 2 * 1024 * 1024 * 4 <= row.beside_bytes < 2 * 1024 * 1024 * 4 + 1000


@needs_libtpu
@pytest.mark.parametrize("what", ["convolution", "matmuls", "sum"])
def test_much_beside_a_permute(what):
    """Channels of one number, a batch of square matrices; and what is one number in the end."""
    (x,) = tensors(1, 32768, 1024)
    (pictures,) = tensors(1, 128, 256, 28, 28, dtype=torch.bfloat16)
    (filters,) = tensors(1, 256, 256, 3, 3, dtype=torch.bfloat16)
    (batch,) = tensors(1, 8, 2048, 2048, dtype=torch.bfloat16)
    (much,) = tensors(1, 64, 1024, 1024)
    works = {
        "convolution": lambda: torch.conv2d(pictures, filters, padding=1),
        "matmuls": lambda: torch.bmm(batch, batch),
        "sum": lambda: (much * much).sum(),
    }

    def step():
        return xm.collective_permute(x, RING) + 1, works[what]()

    (row,) = torch_xla_cc.inspect(step, target=V5E).rows
    assert row.overlaps
    expected = {
        "convolution": 128 * 256 * 256 * (3 * 28 - 2) ** 2 / 120,
        "matmuls": 8 * 2048**3 / 120,
        "sum": 64 << 22,
    }
    assert row.beside_bytes == pytest.approx(expected[what], rel=0.3)


@needs_libtpu
def test_what_a_loop_carries_is_not_computed():
    """Of what it slices, a row a time."""
    x, start = tensors(1, 4096, 1024) + tensors(1, 8, 128)
    (many,) = tensors(1, 16384, 8, 128)

    def step():
        def body(carried, row):
            return torch.tanh(carried * row), carried.sum()

        return xm.collective_permute(x, RING) + 1, scan(body, start, many)[0]

    (row,) = torch_xla_cc.inspect(step, target=V5E).rows
    assert row.beside == ("while",)
    assert not row.overlaps and 8 * 128 * 4 < row.beside_bytes < 100_000


@needs_libtpu
def test_a_small_matmul_hides_little():
    says = "waits: what computes meanwhile is worth 4,473,924 bytes, and 16,777,216 come"
    with pytest.raises(AssertionError, match=says) as error:
        torch_xla_cc.assert_overlaps(permute_beside_a_matmul(512), target=V5E)
    assert "0 overlapped, 1 waiting" in str(error.value)


@needs_libtpu
def test_a_large_reduce_scatter_is_a_fusion(monkeypatch):
    monkeypatch.setattr(test_aot, "ROWS", 16384)  # 64 MiB
    program = _aot.compile_hlo(test_aot.collective("reduce-scatter"), V5E)
    assert not any(one.opcode == "reduce-scatter" for one in program.instructions())
    # It pads, and hands what is too much to a neighbour.
    scatter, handed = _aot.collectives(program)
    assert (scatter.opcode, handed.opcode) == ("reduce-scatter", "collective-permute")
    assert scatter.operand_bytes == 64 << 20 and scatter.groups == (tuple(range(8)),)


@needs_libtpu
@pytest.mark.parametrize(("target", "in_stages"), [(V5E, 1), (V4, 1), ("tpu:v5e:8x8", 2)])
def test_lists_go_one_by_one(target, in_stages):
    """Each operand is an instruction of its own, and stays one."""
    x, y = tensors(2, 128, 512)
    (z,) = tensors(1, 32, 512)

    def step():
        return xm.all_gather([x, y, z]), xm.all_gather([z + 1, y + 1])

    report = torch_xla_cc.inspect(step, target=target)
    made = report.summary
    assert (made.traced, made.kept, made.gone) == (5 * in_stages, 5 * in_stages, 0)
    assert made.instructions == len(report.rows) == 5 * in_stages
    assert {row.line for row in report.rows} == {step.__code__.co_firstlineno + 1}
    assert made.link_bytes < 1.4 * made.fewest_link_bytes


@needs_libtpu
def test_what_is_lost_in_a_type_of_the_compilers():
    (x,) = tensors(1, 4096, 1024, dtype=torch.float16)
    scatter = lambda: xm.reduce_scatter("sum", x, 1.0, 0, 8)  # noqa: E731
    (row,) = torch_xla_cc.inspect(scatter, target=V5E).rows
    assert (row.before, row.after) == (("reduce-scatter",), "all-reduce")


@needs_libtpu
def test_two_stages_are_one_call():
    """As fusions they have lost their metadata, too."""
    (x,) = tensors(1, 131072, 128)
    report = torch_xla_cc.inspect(lambda: xm.reduce_scatter("sum", x * 2, scatter_dim=0), target=V4)
    made = report.summary
    assert made.kept == made.traced > 1 and made.gone == made.changed == 0
    assert made.fewest_link_bytes == round((64 << 20) * 7 / 8 / 3)  # over three links of a chip
    assert made.fewest_link_bytes <= made.link_bytes < 1.3 * made.fewest_link_bytes


def several(op, values):
    return [op(values[0] * 2), op(values[1] * 3), op(values[2] * 4)]


@pytest.mark.parametrize(
    ("target", "op", "after"),
    [
        pytest.param(V5E, "all_reduce", "all-reduce", marks=needs_libtpu),
        pytest.param(V4, "reduce_scatter", "all-reduce", marks=needs_libtpu),
        pytest.param(H100, "all_reduce", "all-reduce", marks=needs_plugin),
        pytest.param(H100, "all_gather", "all-gather", marks=needs_plugin),
    ],
)
def test_what_is_combined_names_its_calls(target, op, after):
    values = [x for shape in ((64, 128), (64, 4, 8), (512,)) for x in tensors(1, *shape)]
    call = (
        (lambda x: xm.all_gather(x))
        if op == "all_gather"
        else (lambda x: getattr(xm, op)("sum", x, *(() if op == "all_reduce" else (1.0, 0))))
    )
    report = torch_xla_cc.assert_lowers_to(several, {after: 1}, call, values, target=target)
    (row,) = report.rows
    assert row.before == (op.replace("_", "-"),) * 3 and len(row.calls) == 3
    made = report.summary
    assert (made.combined, made.in_combined, made.waits) == (1, 3, 1)
    changed = op.replace("_", "-") != after
    assert (made.kept, made.changed) == ((0, 3) if changed else (3, 0))
    assert made.link_bytes == pytest.approx(made.fewest_link_bytes * (2 if changed else 1), abs=1)
    assert "3 combined in 1" in report.to_text() and "3 test_combined.py" in report.to_text()


@needs_libtpu
def test_what_is_gone_is_not_in_what_stays():
    """The compiler gathers one in the other's type, and drops the other."""
    (f32,), (bf16,), (weight,) = (
        tensors(1, 128, 128),
        tensors(1, 128, 128, dtype=torch.bfloat16),
        tensors(1, 128, 128, dtype=torch.bfloat16),
    )

    def step():
        xm.all_gather(bf16)
        return xm.all_gather(f32 * 2).bfloat16() @ weight

    made = torch_xla_cc.inspect(step, target=V5E).summary
    assert (made.combined, made.kept, made.gone) == (0, 1, made.traced - 1)


@needs_libtpu
def test_a_loop_of_torch_xla_has_a_report():
    """Its body has the numbers of another table of lines."""
    from torch._higher_order_ops.while_loop import while_loop
    from torch_xla.experimental import fori_loop  # noqa: F401 (it teaches torch_xla loops)

    (x,) = tensors(1, 8, 128)
    count = torch.tensor(3).to(torch_xla.device())

    def loop():
        return while_loop(lambda i, x: i > 0, lambda i, x: (i - 1, x + 1), (count, x))

    assert torch_xla_cc.inspect(loop, target=V5E).failure == ""
