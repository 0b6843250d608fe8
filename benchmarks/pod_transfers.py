"""64 MiB to a pod's device and back, beside memcpy: the plugin alone, without torch_xla.

torch_xla itself copies each tensor twice more on the way back, and once more on the way there,
into memory that is new each time; `benchmarks/pod_steps.py` has what a user sees.

    python benchmarks/pod_transfers.py
"""

import ctypes
import statistics
import time
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

import txcc_pod

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "pod/abi/table.def").read_text()
BYTES = 64 << 20
F32 = 11
TIMES = 12


def _struct(name, /, **fields):
    """Arguments of a call: of what it does there is a C struct in pod/abi."""
    head = [("struct_size", c_size_t), ("extension", c_void_p)]
    return type(name, (ctypes.Structure,), {"_fields_": head + list(fields.items())})


Option = _struct(
    "Option", name=c_char_p, name_size=c_size_t, kind=c_int, string=c_char_p, size=c_size_t
)
Create = _struct(
    "Create",
    options=POINTER(Option),
    num_options=c_size_t,
    store=c_void_p * 4,
    client=c_void_p,
)
FromHost = _struct(
    "FromHost",
    client=c_void_p,
    data=c_void_p,
    type=c_int,
    dims=POINTER(c_int64),
    num_dims=c_size_t,
    byte_strides=c_void_p,
    num_byte_strides=c_size_t,
    semantics=c_int32,
    device=c_void_p,
    memory=c_void_p,
    layout=c_void_p,
    done=c_void_p,
    buffer=c_void_p,
)
ToHost = _struct(
    "ToHost",
    buffer=c_void_p,
    layout=c_void_p,
    destination=c_void_p,
    size=c_size_t,
    event=c_void_p,
)
Of = _struct("Of", thing=c_void_p)
Message = _struct("Message", error=c_void_p, message=c_char_p, size=c_size_t)


class Plugin:
    """The functions of libpod.so, by name."""

    def __init__(self):
        library = ctypes.CDLL(txcc_pod.PodPlugin().library_path())
        library.GetPjrtApi.restype = c_void_p
        names = [line[6:].split(")")[0] for line in TABLE.splitlines() if line.startswith("ENTRY(")]
        begin = library.GetPjrtApi() + 40  # a head, and a version with its own
        kind = ctypes.CFUNCTYPE(c_void_p, c_void_p)
        addresses = (c_void_p * len(names)).from_address(begin)
        self._functions = {name: kind(at) for name, at in zip(names, addresses, strict=True) if at}

    def __call__(self, name, kind, /, **fields):
        """Call it; returns the arguments, in which it has answered."""
        args = kind(struct_size=ctypes.sizeof(kind), **fields)
        if error := self._functions[name](byref(args)):
            said = self("Error_Message", Message, error=error)
            raise RuntimeError(said.message[: said.size].decode())
        return args


def main():
    """Print GB/s, and the parts of memcpy's."""
    plugin = Plugin()
    given = txcc_pod.PodPlugin().client_create_options()
    options = (Option * len(given))()
    for option, (name, text) in zip(options, given.items(), strict=True):
        option.struct_size = ctypes.sizeof(Option)
        option.name, option.name_size = name.encode(), len(name)
        option.string, option.size = text.encode(), len(text)
    client = plugin("Client_Create", Create, options=options, num_options=len(options)).client

    pattern = bytes(range(256)) * (BYTES // 256)
    source, target = ctypes.create_string_buffer(BYTES), ctypes.create_string_buffer(BYTES)
    dims = (c_int64 * 1)(BYTES // 4)

    def wait(event):
        plugin("Event_Await", Of, thing=event)
        plugin("Event_Destroy", Of, thing=event)

    def there():
        args = plugin(
            "Client_BufferFromHostBuffer",
            FromHost,
            client=client,
            data=ctypes.addressof(source),
            type=F32,
            dims=dims,
            num_dims=1,
        )
        wait(args.done)
        return args.buffer

    def back(buffer):
        args = plugin(
            "Buffer_ToHostBuffer",
            ToHost,
            buffer=buffer,
            destination=ctypes.addressof(target),
            size=BYTES,
        )
        wait(args.event)

    def rate(call, after=lambda _: None):
        times = []
        for _ in range(TIMES):
            began = time.perf_counter()
            made = call()
            times.append(time.perf_counter() - began)
            after(made)
        return BYTES / statistics.median(times[2:]) / 1e9

    memcpy = rate(lambda: ctypes.memmove(target, source, BYTES))
    to = rate(there, lambda buffer: plugin("Buffer_Destroy", Of, thing=buffer))
    source.raw, target.raw = pattern, bytes(BYTES)
    buffer = there()
    source.raw = bytes(BYTES)
    fro = rate(lambda: back(buffer))
    assert target.raw == pattern
    print(f"64 MiB, GB/s: memcpy {memcpy:.1f}, to the device {to:.1f}, back {fro:.1f};", end=" ")
    print(f"of memcpy's: {to / memcpy:.2f} and {fro / memcpy:.2f}")


if __name__ == "__main__":
    main()
