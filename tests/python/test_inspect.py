"""inspect() and its assertions, on the compilers of the CPU and of a TPU."""

import json
import threading
from collections import Counter

import pytest
import torch
import torch_xla
import worlds
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

import torch_xla_cc
from torch_xla_cc import xla_model as xm

TPU = "tpu:v5e:2x4"


def device_tensor(*shape):
    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape).to("xla")
    torch_xla.sync()
    return x


@pytest.mark.parametrize(("target", "world"), [("cpu", 4), (TPU, 8)])
def test_a_function(target, world):
    x = device_tensor(8, 128)

    def step(factor):
        return xm.all_gather(x * factor, dim=0), xm.all_reduce("sum", x)

    report = torch_xla_cc.inspect(step, 2.0, target=target, world_size=world)
    assert not report.failure
    assert (report.target, report.world) == (target, world)
    rows = {row.after: row for row in report.rows}
    gather, reduce = rows["all-gather"], rows["all-reduce"]
    assert gather.before == ("all-gather",) and gather.operands == ("f32[8,128]",)
    assert gather.wire_bytes == 8 * 128 * 4 * (world - 1)
    assert reduce.wire_bytes == 2 * 8 * 128 * 4 * (world - 1) // world
    assert gather.rule == "native" and gather.call == "all_gather(dim=0, groups=world)"
    assert gather.file == __file__
    assert gather.line == reduce.line == step.__code__.co_firstlineno + 1
    made = json.loads(report.to_json())
    assert made["wire_bytes"] == report.wire_bytes
    # Half of what comes to a rank: around a ring of CPU devices, or over two links of a corner.
    assert made["link_bytes"] == made["fewest_link_bytes"] == report.wire_bytes // 2
    assert made["summary"]["kept"] == made["summary"]["waits"] == 2
    assert "all-gather" in report.to_text() and f"{world} ranks" in report.to_text()


def test_what_a_step_changes_is_restored():
    weights = torch.nn.Parameter(torch.ones(4, 4, device="xla"))
    optimizer = torch.optim.SGD([weights], lr=0.5)
    x = device_tensor(4, 4)

    def step():
        (weights @ x).sum().backward()
        weights.grad.copy_(xm.all_reduce("sum", weights.grad))
        optimizer.step()
        x.add_(1)

    report = torch_xla_cc.inspect(step, target=TPU)
    assert report.counts == {"all-reduce": 1}
    assert weights.grad is None
    assert torch.equal(weights.detach().cpu(), torch.ones(4, 4))
    assert x.cpu().tolist() == torch.arange(16.0).reshape(4, 4).tolist()
    # And the step still runs here.
    step()
    torch_xla.sync()
    assert x.cpu()[0, 0] == 1.0 and weights.grad is not None


def test_what_is_written_to_in_place():
    x, y, z = device_tensor(4), device_tensor(4), device_tensor(4)

    def step():
        xm.all_reduce("sum", [x])
        y.copy_(xm.all_gather(y)[:4])
        z.copy_(xm.all_reduce("max", z))
        z.add_(1)
        z[1:].zero_()

    for _ in range(2):
        report = torch_xla_cc.inspect(step, target=TPU)
        assert not report.failure
        # The compiler makes an all-reduce of its own of so small a gather.
        issued = Counter(opcode for row in report.rows for opcode in row.before)
        assert issued == {"all-gather": 1, "all-reduce": 2}
    for one in (x, y, z):
        assert one.tolist() == [0.0, 1.0, 2.0, 3.0]
    step()
    assert z.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_beside_tensors_that_torch_compile_traced_with():
    """They outlive the trace in tracebacks and cycles, and say that they are on the device."""
    x = device_tensor(4)
    fake = FakeTensorMode().from_tensor(x)
    with FunctionalTensorMode():
        functional = FunctionalTensor.to_functional(fake)
    assert {one.device.type for one in (fake, functional, functional.elem)} == {"xla"}
    report = torch_xla_cc.inspect(lambda: xm.all_reduce("sum", x.add_(1)), target=TPU)
    assert report.counts == {"all-reduce": 1}
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_pending_tensors():
    x = device_tensor(8, 128)
    report = torch_xla_cc.inspect({"sum": x + 1})
    assert report.rows == () and not report.failure
    with pytest.raises(ValueError, match="have been traced already"):
        torch_xla_cc.inspect(x, target=TPU)
    with pytest.raises(TypeError, match="only a function"):
        torch_xla_cc.inspect(x, 1)


def test_a_function_that_raises():
    x = device_tensor(2)

    def wrong():
        x.add_(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        torch_xla_cc.inspect(wrong, target=TPU)
    assert x.cpu().tolist() == [0.0, 1.0]


def test_tensors_that_are_kept():
    weights = torch.nn.Parameter(torch.ones(4, 4, device="xla"))
    optimizer = torch.optim.SGD([weights], lr=0.5, momentum=0.9)

    def step():
        weights.pow(2).sum().backward()
        weights.grad.copy_(xm.all_reduce("sum", weights.grad))
        optimizer.step()

    with pytest.raises(RuntimeError, match=r"has kept 1 tensors .* run a step before"):
        torch_xla_cc.inspect(step, target=TPU)
    state = optimizer.state[weights]["momentum_buffer"]
    assert bool(state.isnan().all())  # and no program for a TPU, run here
    optimizer.state.clear()
    step()
    torch_xla.sync()
    before = weights.detach().cpu()
    assert torch_xla_cc.inspect(step, target=TPU).counts == {"all-reduce": 1}
    assert torch.equal(weights.detach().cpu(), before)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: print(x),
        lambda x: x.to("cpu"),
        lambda x: torch_xla.sync(),
        lambda x: torch.nonzero(x),
    ],
)
def test_nothing_runs(read, capsys):
    x = device_tensor(4)
    with pytest.raises(RuntimeError, match="nothing of it runs"):
        torch_xla_cc.inspect(lambda: read(xm.all_reduce("sum", x)), target=TPU)
    assert x.cpu().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_another_thread_steps_meanwhile():
    x = device_tensor(4)
    y = device_tensor(2)
    seen = []

    def other():
        y.add_(1)
        torch_xla.sync()
        seen.append(y.tolist())

    def step():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return xm.all_reduce("sum", x)

    assert torch_xla_cc.inspect(step, target=TPU).counts == {"all-reduce": 1}
    assert seen == [[1.0, 2.0]]


def test_a_target_that_does_not_exist():
    with pytest.raises(ValueError, match="tpu:v9"):
        torch_xla_cc.inspect(lambda: None, target="tpu:v9:2x4")


def test_a_compiler_that_takes_too_long():
    x = device_tensor(8)
    report = torch_xla_cc.inspect(xm.all_gather, x, target=TPU, timeout_s=0.01)
    assert "more than 0.01 s" in report.failure
    assert [row.after for row in report.rows] == ["?"]
    assert "not compiled" in report.to_text()


def test_assert_lowers_to():
    x = device_tensor(8, 128)

    def step():
        return xm.all_gather(x), xm.all_reduce("sum", x)

    torch_xla_cc.assert_lowers_to(step, "all-gather", target=TPU)
    torch_xla_cc.assert_lowers_to(step, "reduce-scatter", count=0, target=TPU)
    torch_xla_cc.assert_lowers_to(step, {"all-gather": 1, "all-reduce": 1}, target=TPU)
    with pytest.raises(AssertionError, match="all-gather: expected 2, found 1") as error:
        torch_xla_cc.assert_lowers_to(step, "all-gather", count=2, target=TPU)
    assert "test_inspect.py" in str(error.value)
    with pytest.raises(AssertionError, match="all-reduce: expected 0, found 1"):
        torch_xla_cc.assert_lowers_to(step, {"all-gather": 1}, target=TPU)


@pytest.mark.filterwarnings("ignore::torch_xla_cc.FallbackWarning")
def test_fallbacks_are_counted_as_what_was_called():
    x = device_tensor(8, 128)
    s64 = torch.ones(4096, dtype=torch.int64, device="xla")
    torch_xla.sync()
    halves = [[0, 1], [2, 3]]
    # By an all-gather: three operands, half of them either way. Called was 1 KiB to the next on
    # either side, and half of it either way to the one opposite.
    report = torch_xla_cc.inspect(lambda: xm.all_to_all(x, 0, 0), target="cpu", world_size=4)
    assert report.counts == {"all-gather": 1}
    assert (report.link_bytes, report.fewest_link_bytes) == (3 * 4096 // 2, 1024 + 1024)
    # Each of two ranks to the other, one way around.
    report = torch_xla_cc.inspect(
        lambda: xm.all_gather(x, groups=halves), target="cpu", world_size=4
    )
    assert report.fewest_link_bytes == report.link_bytes == 8 * 128 * 4 // 2
    report = torch_xla_cc.inspect(lambda: xm.all_reduce("max", s64), target=TPU)
    assert report.fewest_link_bytes == 4096 * 8 * 2 * 7 // 8 // 2 < report.link_bytes


def test_what_nobody_needs_does_not_count():
    x = device_tensor(64, 128)

    def step():
        return xm.all_reduce("sum", x) + xm.all_reduce("sum", x), xm.all_gather(x + 1) * 0

    report = torch_xla_cc.inspect(step, target=TPU)
    made = report.summary
    assert (made.traced, made.kept, made.gone) == (3, 2, 1)
    assert made.link_bytes == made.fewest_link_bytes


@pytest.mark.parametrize(
    ("call", "opcode"),
    [
        (torch_xla_cc.assert_lowers_to, "all-gater"),
        (torch_xla_cc.assert_lowers_to, {"all_gather": 1}),
        (torch_xla_cc.assert_overlaps, "all-gather-start"),
        (torch_xla_cc.assert_overlaps, ["all-gather"]),
    ],
)
def test_an_opcode_that_is_none(call, opcode):
    with pytest.raises(ValueError, match=f"{call.__name__}: opcode = .*, but it must be a coll"):
        if call is torch_xla_cc.assert_lowers_to:
            call(print, opcode, count=0)
        else:
            call(print, opcode=opcode, count=0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"count": "1"}, TypeError, "count is str, but it must be an int"),
        ({"count": float("nan")}, TypeError, "count is float"),
        ({"count": True}, TypeError, "count is bool"),
        ({"count": -1}, ValueError, "count = -1, but it must be a number of collectives"),
        ({"target": 5}, TypeError, "inspect: target is int, but it must be a string"),
        ({"timeout_s": "a"}, TypeError, "inspect: timeout_s is str"),
        ({"timeout_s": float("nan")}, ValueError, "inspect: timeout_s = nan"),
        ({"timeout_s": 0}, ValueError, "inspect: timeout_s = 0"),
        ({"options": {"xla_x": "\ud800"}}, ValueError, "must be plain ASCII"),
    ],
    ids=str,
)
def test_arguments_that_are_none(arguments, error, message):
    x = torch.zeros(4, 2, device=torch_xla.device())
    for call in (torch_xla_cc.assert_overlaps, torch_xla_cc.assert_lowers_to):
        opcode = () if call is torch_xla_cc.assert_overlaps else ("all-gather",)
        with pytest.raises(error, match=message):
            call(xm.all_gather, *opcode, x, **{"target": "cpu", "world_size": 4, **arguments})


@pytest.mark.parametrize("nothing", [5, "a", None, [], {"x": torch.ones(2)}], ids=str)
def test_what_holds_no_xla_tensor(nothing):
    with pytest.raises(TypeError, match=f"inspect: {type(nothing).__name__} holds no XLA tensor"):
        torch_xla_cc.inspect(nothing)


def test_no_copies_of_no_collective():
    x = torch.zeros(4, 2, device=torch_xla.device())
    with pytest.raises(AssertionError, match="there is no collective in the program"):
        torch_xla_cc.assert_no_copy(lambda: x + 1, target="cpu", world_size=4)


def test_assert_overlaps():
    x = device_tensor(8, 128)
    torch_xla_cc.assert_overlaps(xm.all_gather, x, count=0, target="cpu", world_size=4)
    with pytest.raises(
        AssertionError, match="expected 1 beside a computation, found 0 of 1"
    ) as error:
        torch_xla_cc.assert_overlaps(xm.all_gather, x, target="cpu", world_size=4)
    assert "all-gather" in str(error.value) and "test_inspect.py" in str(error.value)
    with pytest.raises(AssertionError, match=r"all-reduce: expected 1 .*, found 0 of 0"):
        torch_xla_cc.assert_overlaps(
            xm.all_gather, x, opcode="all-reduce", target="cpu", world_size=4
        )


def test_assert_no_copy():
    x = device_tensor(8, 128)
    torch_xla_cc.assert_no_copy(xm.all_gather, x, dim=0, target=TPU)
    torch_xla_cc.assert_no_copy(lambda: xm.all_gather(x * 2, dim=0) + 1, target=TPU)
    with pytest.raises(AssertionError, match="expected no copy"):
        rows = lambda: x.view(4, 2, 128).transpose(0, 1).reshape(8, 128)  # noqa: E731
        torch_xla_cc.assert_no_copy(lambda: xm.all_gather(rows(), dim=0), target=TPU)


def inspected_by_all(rank):
    x = torch.full((4,), float(rank), device=torch_xla.device())
    torch_xla.sync()

    def step():
        x.add_(1)
        return xm.all_reduce("sum", x)

    counts = torch_xla_cc.inspect(step, target="tpu:v5e:2x2").counts
    return dict(counts), xm.all_reduce("sum", x).tolist()


def test_ranks_inspect_at_the_same_time():
    assert worlds.run(4, inspected_by_all) == [({"all-reduce": 1}, [6.0] * 4)] * 4
