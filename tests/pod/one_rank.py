"""What tests do on a pod of one rank. Each runs there, and returns plain data."""

import os
import re
import time
from pathlib import Path

import torch
import torch_xla
import torch_xla.debug.metrics as metrics
from torch_xla import runtime
from torch_xla.core import xla_model

DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32"),
    *("float64", "complex64", "complex128", "float8_e5m2", "float8_e4m3fn"),
)


def _values(dtype, count):
    generator = torch.Generator().manual_seed(7)
    bits = torch.randint(0, 128, (count * 16,), generator=generator, dtype=torch.uint8)
    if dtype == torch.bool:
        return bits[:count] % 2 == 1
    return bits.view(dtype)[:count]


def _bits(tensor):
    return tensor.reshape(-1).view(torch.uint8)


def round_trips(rank, shape):
    """The types whose bits are not the same after they were on the device."""
    wrong = []
    for name in DTYPES:
        dtype = getattr(torch, name)
        if not shape and name.startswith("float8"):
            continue  # torch's hash of a scalar knows none of eight bits, on any XLA device
        there = _values(dtype, torch.Size(shape).numel()).reshape(shape)
        back = there.to("xla").cpu()
        same = back.shape == there.shape and back.dtype == dtype
        if not (same and torch.equal(_bits(back), _bits(there))):
            wrong.append(name)
    return wrong


def views(rank):
    """Arrays that are not dense on the host."""
    base = torch.arange(4 * 6 * 8, dtype=torch.float32).reshape(4, 6, 8)
    cases = [base.permute(2, 0, 1), base[:, ::2], base[1:3, :, 5], base[:1].expand(3, 6, 8)]
    return [torch.equal(case.to("xla").cpu(), case) for case in cases]


def computes(rank):
    """A step of training, against the CPU."""

    def train(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        ).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for step in range(4):
            optimizer.zero_grad()
            loss = model(torch.full((4, 16), 0.1 * step).to(device)).pow(2).mean()
            loss.backward()
            optimizer.step()
            torch_xla.sync()
            losses.append(loss.item())
        return losses

    return train("xla"), train("cpu")


def no_outputs_and_many(rank):
    """Programs of many outputs, and tensors without elements."""
    many = [torch.full((3,), float(i), device="xla") * 2 for i in range(200)]
    torch_xla.sync()
    empty = torch.zeros(0, 3, device="xla") + 1
    return [float(x.cpu()[0]) for x in many], tuple(empty.cpu().shape)


def donates(rank, size, from_host):
    """A value after steps in place, bytes that the device counts, and those its process took."""
    import pods

    def most():
        (device,) = pods.device_processes([os.getpid()]).values()
        return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{device}/status").read_text())[1])

    x = torch.ones(size).to("xla") if from_host else torch.ones(size, device="xla")
    torch_xla.sync()
    xla_model.wait_device_ops()
    before = most()
    for _ in range(10):
        x += 1
        torch_xla.sync()
    xla_model.wait_device_ops()
    grown = (most() - before) << 10
    info = xla_model.get_memory_info("xla:0")
    value = float(x[5])
    return value, info["bytes_used"], info["peak_bytes_used"], info["bytes_limit"], grown


def lets_go(rank, times):
    """Bytes of the device's tensors, and of both processes, after so many large transfers."""
    import pods

    (device,) = pods.device_processes([os.getpid()]).values()

    def resident():
        return [
            int(open(f"/proc/{pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for pid in (os.getpid(), device)
        ]

    host = torch.ones(1 << 20)
    sizes = []
    for index in range(times):
        there = host.to("xla")
        assert torch.equal(there.cpu(), host)
        del there
        if index == times // 2:
            sizes = resident()
    used = xla_model.get_memory_info("xla:0")["bytes_used"]
    return used, [now - before for now, before in zip(resident(), sizes, strict=True)]


def is_asynchronous(rank):
    """Seconds until a long program has been handed over, and until it has run."""
    x = torch.randn(1200, 1200, device="xla")
    torch_xla.sync(wait=True)

    def long(x):
        for _ in range(12):
            x = x @ x
            x = x / x.norm()
        return x

    y = long(x)
    torch_xla.sync(wait=True)  # compiles
    began = time.monotonic()
    y = long(x)
    torch_xla.sync()
    handed_over = time.monotonic() - began
    y.cpu()
    return handed_over, time.monotonic() - began


def unimplemented(rank):
    """The messages of what the pod leaves out."""
    from torch_xla.utils import dlpack

    x = torch.ones(4).to("xla")
    torch_xla.sync()
    messages = []
    for call in (lambda: dlpack.to_dlpack(x), lambda: torch.zeros(1 << 42, device="xla").cpu()):
        try:
            call()
        except RuntimeError as error:
            messages.append(str(error))
    return messages, (x + 1).cpu().tolist()


def describes(rank):
    """What torch_xla tells of the device."""
    x = torch.ones(3, device="xla") + 1
    return {
        "device": str(torch_xla.device()),
        "kind": torch_xla._XLAC._xla_device_kind("xla:0"),
        "type": runtime.device_type(),
        "attributes": runtime.global_runtime_device_attributes(),
        "hlo": torch_xla._XLAC._get_xla_tensors_hlo([x])[:9],
    }


def caches(rank, folder):
    """The counters of torch_xla's persistent cache, after a program."""
    runtime.initialize_cache(folder)
    x = torch.arange(6.0).to("xla")
    value = (x * 3 + 1).sum().item()
    return value, {name for name in metrics.counter_names() if name.startswith("PersistentCache")}


def forks_and_lets_go(rank):
    """What a child is told that drops tensors and asks for one, and what this rank still has."""
    large = torch.ones(1 << 18).to("xla")
    small = torch.ones(3).to("xla") + 1
    torch_xla.sync()
    # torch_xla's lock of the device: sync(wait=True) may return before it is open, and in a child
    # it would stay closed.
    xla_model.wait_device_ops()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            small.cpu()
        except RuntimeError as error:
            os.write(theirs, str(error).encode())
        del small, large
        os._exit(0)
    os.waitpid(child, 0)
    os.close(theirs)
    said = os.read(ours, 1 << 16).decode()
    return said, float((small + 1).cpu()[0]), float(large.cpu()[-1])


def is_traced(rank, folder):
    """A step while torch_xla's profiler traces the host."""
    import torch_xla.debug.profiler as profiler

    profiler.start_trace(folder)
    value = float((torch.ones(3).to("xla") * 5).cpu()[1])
    profiler.stop_trace()
    return value
