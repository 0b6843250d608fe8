"""Programs: from what torch_xla sends to what jaxlib runs, and what is known of them."""

from __future__ import annotations

import os
import struct
from typing import Any, NamedTuple

import numpy as np

from . import mpi_types, ordering, protos, stablehlo, types
from .errors import INVALID_ARGUMENT, UNIMPLEMENTED, Refused
from .jaxlib_xla import xla
from .meetings import Calls, Group, cliques, has_collectives, of_instructions, of_program
from .wire import Writer

ONE_PROGRAM = "TORCH_XLA_CC_POD_PROGRAMS"  # "same": of all ranks, as a TPU needs it
_MAGIC = {by_names: b"torch_xla_cc pod %d\n" % (2 + by_names) for by_names in (False, True)}


class Program(NamedTuple):
    """One that can run."""

    loaded: Any
    options: bytes
    facts: Writer
    donated: frozenset[int]  # the parameters whose buffers outputs take
    output_sizes: list[int]
    collectives: int  # 0: it meets no other rank
    calls: Calls  # these
    key: str  # of these
    impatient: bool  # as they are
    cliques: tuple[Group, ...]  # where XLA calls MPI's names


def compiled(
    client: Any,
    form: str,
    code: memoryview,
    options: memoryview,
    *,
    by_names: bool = False,
    patient: bool = True,
) -> Program:
    """Of a HloModuleProto ("hlo") or StableHLO ("mlir"), with a CompileOptionsProto.

    `by_names`: XLA calls MPI's names, and not gloo.
    """
    settings, devices = _settings(client, bytes(options))
    module: str | bytes
    if form == "hlo":
        hlo = bytes(code)
        if settings.num_replicas > 1:  # ranks, which may have programs of their own
            hlo = ordering.ordered(hlo, patient=patient and not by_names, by_names=by_names)
        text = xla.mlir.xla_computation_to_mlir_module(xla.XlaComputation(hlo))
        module = stablehlo.with_donors(text, protos.donated_parameters(hlo))
    elif form == "mlir":
        module = bytes(code)
    else:
        raise Refused(UNIMPLEMENTED, f"programs in the format {form!r} are not taken by the pod")
    loaded = client.compile_and_load(module, devices, settings)
    program = _known(client, loaded, bytes(options), by_names)
    if program.collectives and form == "mlir" and settings.num_replicas > 1:
        raise Refused(
            UNIMPLEMENTED,
            "a program of several ranks with collectives is StableHLO, in which the pod does not "
            "order them. Unset XLA_STABLEHLO_COMPILE",
        )
    if program.collectives and form == "hlo" and os.environ.get(ONE_PROGRAM) == "same":
        text = xla.XlaComputation(bytes(code)).as_hlo_text(True)  # with large constants
        calls = of_instructions(text, len(client.devices()))
        program = program._replace(calls=calls, key=calls.key())
    return program


def serialized(client: Any, program: Program, *, by_names: bool = False) -> bytes:
    """To be loaded by `loaded` with the same jaxlib, and the same `by_names`."""
    code = client.serialize_executable(program.loaded)
    sizes = struct.pack("<QQ", len(program.options), len(code))
    return b"".join((_MAGIC[by_names], sizes, program.options, code))


def loaded(
    client: Any, code: memoryview, options: memoryview, *, by_names: bool = False
) -> Program:
    """What was serialized; with other options, if there are any."""
    start = len(_MAGIC[by_names])
    if bytes(code[:start]) != _MAGIC[by_names]:
        why = "these bytes are no program that the pod has serialized"
        if bytes(code[:start]) == _MAGIC[not by_names]:
            why = "this program was serialized where collectives go otherwise: by gloo, or not"
        raise Refused(INVALID_ARGUMENT, why)
    size, _ = struct.unpack_from("<QQ", code, start)
    start += 16
    own = bytes(options) or bytes(code[start : start + size])
    settings, devices = _settings(client, own)
    program = client.deserialize_executable(bytes(code[start + size :]), devices, settings)
    return _known(client, program, own, by_names)


def _settings(client: Any, serialized: bytes) -> tuple[Any, Any]:
    """jaxlib's options, for its own numbers of devices, and the devices in their order."""
    settings = xla.CompileOptions.ParseFromString(serialized)
    every = {device.process_index: device for device in client.devices()}
    replicas, partitions = settings.num_replicas, settings.num_partitions
    build = settings.executable_build_options
    replicas, partitions = max(replicas, build.num_replicas), max(partitions, build.num_partitions)
    given = build.device_assignment
    if given is None:
        rows = np.arange(replicas * partitions).reshape(replicas, partitions)
    else:
        rows = np.array(protos.device_ids(given.serialize())).T
    unknown = sorted(set(rows.flatten().tolist()) - set(every))
    if unknown:
        raise Refused(
            INVALID_ARGUMENT, f"the program runs on devices {unknown}, the pod has {len(every)}"
        )
    ids = np.vectorize(lambda process: every[process].id)(rows).astype(np.int32)
    settings.num_replicas, settings.num_partitions = rows.shape
    settings.device_assignment = xla.DeviceAssignment.create(ids)
    devices = tuple(every[process] for process in rows.flatten().tolist())
    return settings, xla.DeviceList(devices)


def _known(client: Any, loaded: Any, options: bytes, by_names: bool) -> Program:
    settings = xla.CompileOptions.ParseFromString(options)
    build = settings.executable_build_options
    replicas = max(settings.num_replicas, build.num_replicas)
    partitions = max(settings.num_partitions, build.num_partitions)
    (module,) = loaded.hlo_modules()
    proto = module.as_serialized_hlo_module_proto()
    result = xla.XlaComputation(proto).program_shape().result_shape()
    outputs = result.tuple_shapes() if result.is_tuple() else [result]
    for output, layout in zip(outputs, loaded.get_output_layouts(), strict=True):
        _check(output, layout)
    facts = Writer().text(module.name).content(loaded.fingerprint or b"")
    facts.content(protos.with_config(proto, replicas, partitions))
    facts.number(replicas).number(partitions).number(loaded.size_of_generated_code_in_bytes())
    donated = protos.donated_parameters(proto)
    facts.numbers(donated)
    kinds = [types.number_of(output.xla_element_type().name) for output in outputs]
    facts.numbers(kinds)
    for output in outputs:
        facts.numbers(output.dimensions())
    sizes = [
        types.size_of(kind, output.dimensions())
        for kind, output in zip(kinds, outputs, strict=True)
    ]
    text = module.to_string()
    if by_names and partitions > 1:
        mpi_types.check(text)
    place = client.process_index(), len(client.devices())
    calls = of_program(text, *place)
    collectives = max(1, calls.total()) if has_collectives(text) else 0
    return Program(
        loaded,
        options,
        facts,
        frozenset(donated),
        sizes,
        collectives,
        calls,
        calls.key(),
        calls.is_impatient(),
        cliques(text, *place) if by_names else (),
    )


def _check(output: Any, layout: Any) -> None:
    if not output.is_array():
        raise Refused(
            UNIMPLEMENTED, f"an output of the type {output} is not implemented by the pod"
        )
    if not output.is_static():
        raise Refused(
            UNIMPLEMENTED,
            f"an output of a size that is known only when it has run, {output}, is not "
            "implemented by the pod: PJRT plugins have none. Use sizes that no value decides",
        )
    order = layout._xla_layout().minor_to_major()
    if list(order) != list(range(len(order)))[::-1]:
        raise Refused(UNIMPLEMENTED, f"an output with the layout {order} is not implemented")
