"""The first thing that all ranks run, before what is asked of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .jaxlib_xla import xla

_ALL_REDUCE = """
func.func public @main(%x: tensor<i32>) -> tensor<i32> {{
  %sum = "stablehlo.all_reduce"(%x) ({{
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %added = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %added : tensor<i32>
  }}) {{replica_groups = dense<[{ranks}]> : tensor<1x{size}xi64>}} : (tensor<i32>) -> tensor<i32>
  return %sum : tensor<i32>
}}
"""


def compiled(client: Any, size: int) -> Any:
    """Its program.

    XLA:CPU connects a set of ranks when all of them first run a collective of it. A
    collective-permute takes the set of all ranks, also where only those of a group run it.
    """
    every = sorted(client.devices(), key=lambda device: device.process_index)
    options = xla.CompileOptions()
    options.num_replicas = size
    ids = np.array([[device.id] for device in every], np.int32)
    options.device_assignment = xla.DeviceAssignment.create(ids)
    text = _ALL_REDUCE.format(ranks=list(range(size)), size=size)
    return client.compile_and_load(text, xla.DeviceList(tuple(every)), options)


def run(client: Any, program: Any) -> None:
    """Have all connect with each other."""
    one = client.buffer_from_pyval(np.array(1, np.int32), client.local_devices()[0], True)
    results = program.execute_sharded([one]).disassemble_into_single_device_arrays()
    results[0][0].block_until_ready()
