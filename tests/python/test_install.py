"""install: an exact exchange of torch_xla's collectives, and what torch_xla builds on them."""

import contextlib
import os
import threading

import pytest
import torch
import torch.distributed as dist
import torch_xla
import worlds
from torch_xla.core import xla_model as stock
from torch_xla.distributed import xla_multiprocessing
from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel
from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer

import torch_xla_cc
from torch_xla_cc import xla_model as ours

NAMES = ["all_gather", "all_gather_bucketized", "all_reduce", "all_to_all", "collective_broadcast"]
NAMES += ["collective_permute", "recv", "reduce_scatter", "reduce_scatter_bucketized", "send"]
ORIGINAL = dict(vars(stock))


def changed():
    """The names in torch_xla's module that are not what they were."""
    now = vars(stock)
    names = {*now, *ORIGINAL}
    return sorted(name for name in names if now.get(name) is not ORIGINAL.get(name))


@pytest.fixture(autouse=True)
def _undo():
    assert changed() == []
    yield
    torch_xla_cc.uninstall()
    assert changed() == []


def test_install_and_uninstall():
    torch_xla_cc.install()
    assert changed() == NAMES
    assert all(getattr(stock, name) is getattr(ours, name) for name in NAMES)
    torch_xla_cc.uninstall()
    assert changed() == []


def test_torch_distributed_is_as_it_was():
    plugin, functions = dist.Backend._plugins["XLA"], dict(vars(dist))
    with torch_xla_cc.installed():
        assert dist.Backend._plugins["XLA"] is not plugin
        assert dist.new_group is not functions["new_group"]
    assert dist.Backend._plugins["XLA"] is plugin
    assert [name for name, one in functions.items() if vars(dist)[name] is not one] == []


def test_twice_is_once():
    torch_xla_cc.install()
    torch_xla_cc.install()
    assert changed() == NAMES
    torch_xla_cc.uninstall()
    assert changed() == []
    torch_xla_cc.uninstall()
    assert changed() == []


def test_installed_is_for_a_block():
    with torch_xla_cc.installed():
        assert changed() == NAMES
        with torch_xla_cc.installed():
            assert changed() == NAMES
        assert changed() == NAMES
    assert changed() == []
    with pytest.raises(KeyError), torch_xla_cc.installed():
        raise KeyError
    assert changed() == []


def test_installed_after_install_changes_nothing():
    torch_xla_cc.install()
    with torch_xla_cc.installed():
        assert changed() == NAMES
    assert changed() == NAMES


def test_installed_on_threads_lasts_until_the_last_leaves():
    inside, may_leave = threading.Event(), threading.Event()
    seen = []

    def second():
        with torch_xla_cc.installed():
            inside.set()
            may_leave.wait(20)
            seen.append(changed())

    thread = threading.Thread(target=second)
    with torch_xla_cc.installed():
        thread.start()
        assert inside.wait(20)
    may_leave.set()
    thread.join(20)
    assert seen == [NAMES]
    assert changed() == []


# On devices: four ranks with two rows each do what one device does with eight.
RANKS = 4
STEPS = 4
# Sums of four in another order; and the CPU compiler fuses differently in programs of other shapes.
TOLERANCE = dict(rtol=1e-5, atol=1e-6)


def network():
    """The same on every rank and in every process."""
    generator = torch.Generator().manual_seed(3)
    layers = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Tanh(), torch.nn.Linear(10, 3))
    with torch.no_grad():
        for parameter in layers.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return layers


def rows(rank=0, ranks=1):
    generator = torch.Generator().manual_seed(4)
    count = 8 // ranks
    mine = slice(rank * count, (rank + 1) * count)
    inputs, targets = (torch.randn(8, n, generator=generator)[mine] for n in (6, 3))
    return inputs.to(torch_xla.device()), targets.to(torch_xla.device())


def optimizer(name, parameters):
    if name == "adam":
        return torch.optim.Adam(parameters, lr=0.05)
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def steps(model, update, inputs, targets, zero_grad, ranks):
    """The losses, averaged over the ranks, of some steps."""
    losses = []
    for _ in range(STEPS):
        zero_grad()
        loss = ((model(inputs) - targets) ** 2).mean()
        loss.backward()
        update()
        average = loss.detach()
        if ranks > 1:
            average = ours.all_reduce(ours.REDUCE_AVERAGE, average)
        losses.append(average.item())
    return losses


def parameters_of(model):
    return [parameter.detach().cpu() for parameter in model.parameters()]


def train_alone(_, name, max_norm=None):
    model = network().to(torch_xla.device())
    one = optimizer(name, model.parameters())

    def update():
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        one.step()

    losses = steps(model, update, *rows(), one.zero_grad, 1)
    return losses, parameters_of(model)


def train_by_optimizer_step(rank, name, bucket_mb):
    model = network().to(torch_xla.device())
    mine = optimizer(name, model.parameters())

    def update():
        stock.optimizer_step(mine, barrier=True)

    os.environ["ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB"] = bucket_mb
    losses = steps(model, update, *rows(rank, RANKS), mine.zero_grad, RANKS)
    return losses, parameters_of(model)


def train_by_fsdp(rank, options):
    model = XlaFullyShardedDataParallel(network().to(torch_xla.device()), **options)
    mine = optimizer("sgd", model.parameters())
    return steps(model, mine.step, *rows(rank, RANKS), mine.zero_grad, RANKS)


def train_by_zero(rank, name, options):
    model = network().to(torch_xla.device())
    classes = {
        "adam": (torch.optim.Adam, {"lr": 0.05}),
        "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    }
    kind, defaults = classes[name]
    mine = ZeroRedundancyOptimizer(model.parameters(), kind, **options, **defaults)
    losses = steps(model, mine.step, *rows(rank, RANKS), mine.zero_grad, RANKS)
    return losses, parameters_of(model)


def install_here(rank):
    if rank == 0:
        torch_xla_cc.install()


@pytest.fixture(scope="module")
def world():
    """Four ranks in a process of their own, with install in force."""
    with worlds.World(RANKS) as four:
        four.run(install_here)
        yield four


def assert_like_alone(results, alone):
    for losses, parameters in results:
        torch.testing.assert_close(losses, alone[0], **TOLERANCE)
        torch.testing.assert_close(parameters, alone[1], **TOLERANCE)
    assert alone[0][0] > 1.05 * alone[0][-1]  # it learns: the steps do something


@pytest.mark.parametrize("bucket_mb", ["0", "1"])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_optimizer_step(world, name, bucket_mb):
    [alone] = worlds.run(1, train_alone, name)
    assert_like_alone(world.run(train_by_optimizer_step, name, bucket_mb), alone)


@pytest.mark.parametrize(
    "options",
    [
        {"flatten_parameters": True},
        {"flatten_parameters": False},
        {"flatten_parameters": False, "shard_param_on_dim_0": True},
        {"reshard_after_forward": False},
        {"compute_dtype": torch.float32, "fp32_reduce_scatter": True},
        {"reduce_scatter_bucket_size_mb": 1, "flatten_parameters": False},
        {
            "flatten_parameters": False,
            "shard_param_on_dim_0": True,
            "coalesce_all_gather_ops": True,
        },
    ],
    ids=str,
)
def test_fully_sharded_data_parallel(world, options):
    [(losses, _)] = worlds.run(1, train_alone, "sgd")
    for mine in world.run(train_by_fsdp, options):
        torch.testing.assert_close(mine, losses, **TOLERANCE)


@pytest.mark.parametrize(
    "buckets",
    [{}, {"bucket_cap_mb_all_gather": 1, "bucket_cap_mb_reduce_scatter": 1}],
    ids=["one by one", "in buckets"],
)
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_zero_redundancy_optimizer(world, name, buckets):
    [alone] = worlds.run(1, train_alone, name)
    options = {"grad_clipping": False, **buckets}
    assert_like_alone(world.run(train_by_zero, name, options), alone)


def test_zero_redundancy_optimizer_clips(world):
    [alone] = worlds.run(1, train_alone, "sgd", 0.25)
    [free] = worlds.run(1, train_alone, "sgd")
    assert alone[0][1] > free[0][1] + 1e-3  # the limit is in force
    options = {"grad_clipping": True, "max_norm": 0.25}
    assert_like_alone(world.run(train_by_zero, "sgd", options), alone)


def reduce_large_gradients(rank, bucket_mb):
    """The reduced gradients' values, and how many all_reduce calls that took on this rank."""
    os.environ["ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB"] = bucket_mb
    # Of 0.8 MiB each, so that two do not fit into one.
    parameters = [torch.nn.Parameter(torch.zeros(200_000)) for _ in range(3)]
    on_device = torch.nn.ParameterList(parameters).to(torch_xla.device())
    for index, parameter in enumerate(on_device):
        parameter.grad = torch.full_like(parameter, float(rank + index))
    with torch_xla_cc.record() if rank == 0 else contextlib.nullcontext([]) as calls:
        stock.reduce_gradients(torch.optim.SGD(on_device, lr=1.0))
    values = [parameter.grad.unique().tolist() for parameter in on_device]
    return values, [len(call.operands) for call in calls if call.rank == rank]


@pytest.mark.parametrize(("bucket_mb", "calls"), [("0", [3]), ("1", [1, 1, 1]), ("2", [2, 1])])
def test_reduce_gradients(world, bucket_mb, calls):
    results = world.run(reduce_large_gradients, bucket_mb)
    assert results[0][1] == calls
    assert all(values == [[1.5], [2.5], [3.5]] for values, _ in results)


def broadcast_parameters(rank):
    model = network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += rank
    model.register_buffer("count", torch.tensor([rank, rank]))
    model.to(torch_xla.device())
    stock.broadcast_master_param(model)
    return [*parameters_of(model), model.count.cpu()]


def test_broadcast_master_param(world):
    wanted = [parameter.detach() for parameter in network().parameters()]
    for values in world.run(broadcast_parameters):
        torch.testing.assert_close(values, [*wanted, torch.zeros(2, dtype=torch.int64)])


WRAPPED = xla_multiprocessing.MpModelWrapper(network())


def wrapped_model(rank):
    device = torch_xla.device()
    model = WRAPPED.to(device)
    stock.rendezvous("all have theirs")
    assert WRAPPED.to(device) is model
    devices = {str(parameter.device) for parameter in model.parameters()}
    model(torch.ones(1, 6, device=device)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    return devices, parameters_of(model)


def test_each_rank_has_a_module_of_a_wrapper(world):
    wanted = [parameter.detach() for parameter in network().parameters()]
    for rank, (devices, values) in enumerate(world.run(wrapped_model)):
        assert devices == {f"xla:{rank}"}
        torch.testing.assert_close(values, wanted)


def meet(rank):
    payloads = stock.rendezvous("here", b"x" * rank)
    total = stock.mesh_reduce("sum", {"rank": rank, "values": [rank] * 3}, lambda all_of: all_of)
    return payloads, total


def test_rendezvous_and_mesh_reduce(world):
    for payloads, total in world.run(meet):
        assert payloads == [b"", b"x", b"xx", b"xxx"]
        assert total == [{"rank": r, "values": [r] * 3} for r in range(RANKS)]
