"""Runs modules on many virtual CPU devices, in a process of its own: JAX's XLA:CPU.

There replicas are one program, as on a TPU; ranks on threads, of torch_xla, run a program each.
"""

import os
import pickle
import subprocess
import sys


def run(jobs, replicas, timeout_s=240):
    """What modules return on each replica. `jobs`: (a serialized module, an array a replica)."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={replicas} "
        "--xla_backend_optimization_level=0",
    }
    done = subprocess.run(
        [sys.executable, __file__],
        input=pickle.dumps(jobs),
        capture_output=True,
        env=environment,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return pickle.loads(done.stdout)


def main():
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    import jax
    import numpy as np
    from jax._src import xla_bridge
    from jax._src.lib import xla_client
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.config.update("jax_enable_x64", True)
    client = xla_bridge.get_backend("cpu")
    devices = client.devices()
    sharding = NamedSharding(Mesh(np.array(devices), ("rank",)), PartitionSpec("rank"))
    options = xla_client.CompileOptions()
    options.num_replicas = len(devices)
    options.device_assignment = xla_client.DeviceAssignment.create(
        np.arange(len(devices)).reshape(-1, 1)
    )
    results = []
    for module, inputs in pickle.load(sys.stdin.buffer):
        program = client.compile_and_load(
            xla_client._xla.mlir.hlo_to_stablehlo(module), devices, options
        )
        shape = (len(devices) * inputs[0].shape[0], *inputs[0].shape[1:])
        placed = [jax.device_put(x, device) for x, device in zip(inputs, devices, strict=True)]
        whole = jax.make_array_from_single_device_arrays(shape, sharding, placed)
        (out,) = program.execute_sharded([whole]).disassemble_into_single_device_arrays()
        results.append([np.asarray(own) for own in out])
    pickle.dump(results, answers)


if __name__ == "__main__":
    main()
