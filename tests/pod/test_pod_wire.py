"""What the plugin and the device process must both know is the same on both sides."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def device():
    """Modules of the device process, as it finds them itself."""
    folder = str(ROOT / "python/torch_xla_cc/_pod")
    sys.path.append(folder)
    yield lambda name: importlib.import_module(f"pod_device.{name}")
    sys.path.remove(folder)


def test_kinds_of_messages(device):
    rows = re.findall(r"^KIND\((\w+), (\d+)\)", (ROOT / "pod/wire/kinds.def").read_text(), re.M)
    theirs = {kind.name.replace("_", "").lower(): kind.value for kind in device("wire").Kind}
    assert {name.lower(): int(number) for name, number in rows} == theirs


def test_types_of_elements(device):
    body = re.search(r"enum class Type [^{]*{(.*?)}", (ROOT / "pod/abi/types.h").read_text(), re.S)
    names = re.findall(r"\bk(\w+)", body[1])[1:]
    types = device("types")
    assert [types.number_of(name.upper()) for name in names] == list(range(1, len(names) + 1))


def test_fields_come_back(device):
    wire = device("wire")
    writer = (
        wire.Writer().number(-5).text("wörd").numbers([1, 1 << 62, -3]).content(b"").numbers([])
    )
    reader = wire.Reader(memoryview(b"".join(writer.parts)))
    assert reader.number() == -5
    assert reader.text() == "wörd"
    assert reader.numbers() == (1, 1 << 62, -3)
    assert bytes(reader.content()) == b""
    assert reader.numbers() == ()


def test_protos(device):
    protos = device("protos")

    def message(number, content):
        return bytes([number << 3 | 2, len(content)]) + content

    alias = b"\x10\x03"  # parameter 3
    donor = b""  # parameter 0
    shape = message(1, b"\x10\x0b") + message(2, message(4, b"\x10\x0a"))
    module = message(1, b"name") + message(4, shape) + message(8, message(1, alias))
    module += bytes([18 << 3 & 0x7F | 0x80 | 2, 18 >> 4]) + bytes([2]) + message(1, donor)
    assert protos.donated_parameters(module) == [0, 3]
    fields = dict(protos.fields(protos.with_config(module, 300, 1)))
    assert bytes(fields[1]) == module
    assert dict(protos.fields(fields[2]))[4] == 300
    assignment = b"\x08\x02\x10\x01" + message(3, message(1, b"\x01\x00"))
    assert protos.device_ids(assignment) == [[1, 0]]


SERIALIZED = """
import sys; sys.path.append(sys.argv[1]); sys.modules["jax"] = None
from pod_device import programs
from pod_device.jaxlib_xla import xla

client = xla.get_tfrt_cpu_client(num_devices=1)
module = xla.hlo_module_from_text('''
HloModule m
ENTRY e {
  p1 = f32[8] parameter(0)
  sum1 = f32[8] add(p1, p1)
  ROOT r1 = (f32[8]) tuple(sum1)
}''')
options = memoryview(xla.CompileOptions().SerializeAsString())
code = memoryview(module.as_serialized_hlo_module_proto())
program = programs.compiled(client, "hlo", code, options)
again = programs.loaded(client, memoryview(programs.serialized(client, program)), memoryview(b""))
print(again.output_sizes)
"""


def test_programs_that_were_serialized():
    done = subprocess.run(
        [sys.executable, "-c", SERIALIZED, str(ROOT / "python/torch_xla_cc/_pod")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "[32]\n", done.stdout + done.stderr
