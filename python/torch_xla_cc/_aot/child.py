"""Calls a PJRT plugin's compiler in a process of its own: compilers crash, abort and hang.

The parent runs this file by its path, isolated, so that a child starts in milliseconds: it may
import the standard library only. Nothing here creates a client, so no device is touched.

Request, on stdin: a line of JSON, then the bytes of the compile options and of each module.
Answers, on stdout: for each module in turn a line of JSON, then `size` bytes of optimised program.
If the request names a `dump`, the compiler writes the programs into that folder.
"""

from __future__ import annotations

import ctypes as C
import json
import os
import resource
import signal
import sys
from typing import Any

# Positions in the table of functions of PJRT_Api, which only ever grows at its end.
_ERROR_DESTROY, _ERROR_MESSAGE, _PLUGIN_INITIALIZE = 0, 1, 3
_EXECUTABLE_DESTROY, _COST_ANALYSIS, _OPTIMIZED_PROGRAM = 40, 46, 48
_TOPOLOGY_CREATE, _COMPILE, _MEMORY_STATS = 82, 89, 96

_STRING, _INT64, _FLOAT = 0, 1, 3  # PJRT_NamedValue_Type


class PluginError(Exception):
    """An error status of the plugin, with its message."""


class _Struct(C.Structure):
    """How every structure of the PJRT C API begins."""

    _fields_ = (("struct_size", C.c_size_t), ("extension_start", C.c_void_p))

    def __init__(self, **fields: object) -> None:
        super().__init__(struct_size=C.sizeof(self), **fields)


def _struct(name: str, /, **fields: type[object]) -> type[_Struct]:
    return type(name, (_Struct,), {"_fields_": list(fields.items())})


class _Payload(C.Union):
    _fields_ = (("string", C.c_char_p), ("int64", C.c_int64), ("float", C.c_float))


_ADDRESS, _SIZE = C.c_void_p, C.c_size_t
_TEXT = C.c_char_p
_Version = _struct("Version", major=C.c_int, minor=C.c_int)
_Api = _struct("Api", version=_Version, functions=C.CFUNCTYPE(_ADDRESS, _ADDRESS) * 97)
_Error = _struct("Error", error=_ADDRESS, message=_ADDRESS, size=_SIZE)
_Value = _struct("Value", key=_ADDRESS, key_size=_SIZE, type=C.c_int, value=_Payload, count=_SIZE)
_Topology = _struct("Topology", name=_TEXT, size=_SIZE, options=_ADDRESS, count=_SIZE, out=_ADDRESS)
_Program = _struct("Program", code=_ADDRESS, size=_SIZE, format=_TEXT, format_size=_SIZE)
_Compile = _struct(
    "Compile", topology=_ADDRESS, program=_ADDRESS, options=_TEXT, size=_SIZE, client=_ADDRESS,
    out=_ADDRESS,
)  # fmt: skip
_Executable = _struct("Executable", executable=_ADDRESS)
_Optimized = _struct("Optimized", executable=_ADDRESS, program=_ADDRESS)
_Cost = _struct("Cost", executable=_ADDRESS, count=_SIZE, values=_ADDRESS)
# The first figures of xla::CompiledMemoryStats; room for those of the host and of newer plugins.
_MEMORY = ("code", "arguments", "outputs", "aliased", "temporaries")
_Memory = _struct("Memory", executable=_ADDRESS, figures=C.c_int64 * 5, rest=C.c_int64 * 16)


class Plugin:
    """A PJRT plugin, of which only the compiler is used."""

    def __init__(self, library: str, dump: str) -> None:
        self._dump = dump
        get_api = C.CDLL(library).GetPjrtApi
        get_api.restype = C.POINTER(_Api)
        self._api = get_api().contents
        if self._api.version.major != 0 or self._api.struct_size < C.sizeof(_Api):
            raise OSError(f"{library} speaks an unknown version of the PJRT C API")
        self._call(_PLUGIN_INITIALIZE, _Struct())

    def _call(self, function: int, args: _Struct) -> None:
        error = self._api.functions[function](C.addressof(args))
        if error:
            text = _Error(error=error)
            self._api.functions[_ERROR_MESSAGE](C.addressof(text))
            message = C.string_at(text.message, text.size).decode(errors="replace")
            self._api.functions[_ERROR_DESTROY](C.addressof(_Error(error=error)))
            raise PluginError(message)

    def topology(self, name: str, options: dict[str, str]) -> int:
        """A description of the devices to compile for."""
        texts = [(key.encode(), value.encode()) for key, value in options.items()]
        values = [
            _Value(
                key=C.cast(C.c_char_p(key), _ADDRESS),
                key_size=len(key),
                type=_STRING,
                value=_Payload(string=value),
                count=len(value),
            )
            for key, value in texts
        ]
        array = (_Value * len(values))(*values)
        args = _Topology(
            name=name.encode(), size=len(name), options=C.addressof(array), count=len(values)
        )
        self._call(_TOPOLOGY_CREATE, args)
        return int(args.out)

    def compile(self, topology: int, module: bytes, options: bytes) -> tuple[dict[str, Any], bytes]:
        """Figures, and the optimised program, of a serialized HloModuleProto."""
        code = C.create_string_buffer(module, len(module))
        program = _Program(code=C.addressof(code), size=len(module), format=b"hlo", format_size=3)
        args = _Compile(
            topology=topology, program=C.addressof(program), options=options, size=len(options)
        )
        self._call(_COMPILE, args)
        figures: dict[str, Any] = {"memory": self._memory(args.out), "cost": {}}
        if self._dump:
            optimized = self._dumped()
        else:
            figures["cost"] = self._cost(args.out)
            optimized = self._optimized(args.out)
        self._call(_EXECUTABLE_DESTROY, _Executable(executable=args.out))
        return figures, optimized

    def _optimized(self, executable: int) -> bytes:
        program = _Program()
        args = _Optimized(executable=executable, program=C.addressof(program))
        self._call(_OPTIMIZED_PROGRAM, args)  # without a buffer: only the size
        code = C.create_string_buffer(program.size)
        program.code = C.addressof(code)
        self._call(_OPTIMIZED_PROGRAM, args)
        return code.raw

    def _dumped(self) -> bytes:
        """The optimised program that was written last; the folder is emptied for the next."""
        program = b""
        for file in os.scandir(self._dump):
            if file.name.endswith("after_optimizations.hlo.pb"):
                with open(file.path, "rb") as dumped:
                    program = dumped.read()
            os.remove(file.path)
        return program

    def _memory(self, executable: int) -> dict[str, int]:
        args = _Memory(executable=executable)
        self._call(_MEMORY_STATS, args)
        return dict(zip(_MEMORY, args.figures, strict=True))

    def _cost(self, executable: int) -> dict[str, float]:
        args = _Cost(executable=executable)
        self._call(_COST_ANALYSIS, args)
        figures: dict[str, float] = {}
        for value in (_Value * args.count).from_address(args.values) if args.count else ():
            if value.type in (_INT64, _FLOAT):
                key = C.string_at(value.key, value.key_size).decode()
                figures[key] = value.value.int64 if value.type == _INT64 else value.value.float
        return figures


def main() -> None:
    # Answers go to the pipe alone: what a compiler prints on stdout joins its chatter on stderr.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def answer(head: dict[str, Any], program: bytes = b"") -> None:
        answers.write(json.dumps({**head, "size": len(program)}).encode() + b"\n" + program)
        answers.flush()

    request = json.loads(sys.stdin.buffer.readline())
    options, *modules = (sys.stdin.buffer.read(size) for size in request["sizes"])

    # The kernel ends a call that takes too long, even where no Python can run; no core files.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, request["timeout_s"])
    try:
        plugin = Plugin(request["library"], request["dump"])
        topology = plugin.topology(request["topology"], request["options"])
    except (OSError, AttributeError) as error:
        return answer({"failed": "library", "message": str(error)})
    except PluginError as error:
        return answer({"failed": "topology", "message": str(error)})
    for module in modules:
        signal.setitimer(signal.ITIMER_REAL, request["timeout_s"])
        try:
            answer(*plugin.compile(topology, module, options))
        except PluginError as error:
            answer({"failed": "module", "message": str(error)})


if __name__ == "__main__":
    main()
    os._exit(0)  # a compiler's own clean-up may crash, and no one waits for it
