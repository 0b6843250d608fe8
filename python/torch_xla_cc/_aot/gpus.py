"""NVIDIA GPUs, as far as the compiler of XLA asks: it takes a description in place of a GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """What differs between generations; sizes in bytes, as the driver reports them."""

    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    fp32_lanes: int  # of a multiprocessor
    shared_memory: int  # of a multiprocessor
    shared_memory_of_block: int  # the most that one block may ask for
    l2_cache: int
    memory: int
    memory_bandwidth: int  # a second
    clock_ghz: float


GPUS = {
    "a100": Gpu(
        name="NVIDIA A100-SXM4-80GB",
        compute_capability=(8, 0),
        multiprocessors=108,
        fp32_lanes=64,
        shared_memory=164 << 10,
        shared_memory_of_block=163 << 10,
        l2_cache=40 << 20,
        memory=80 << 30,
        memory_bandwidth=2_039_000_000_000,
        clock_ghz=1.41,
    ),
    "h100": Gpu(
        name="NVIDIA H100 80GB HBM3",
        compute_capability=(9, 0),
        multiprocessors=132,
        fp32_lanes=128,
        shared_memory=228 << 10,
        shared_memory_of_block=227 << 10,
        l2_cache=50 << 20,
        memory=80 << 30,
        memory_bandwidth=3_352_000_000_000,
        clock_ghz=1.98,
    ),
    "b200": Gpu(
        name="NVIDIA B200",
        compute_capability=(10, 0),
        multiprocessors=148,
        fp32_lanes=128,
        shared_memory=228 << 10,
        shared_memory_of_block=227 << 10,
        l2_cache=126 << 20,
        memory=180 << 30,
        memory_bandwidth=8_000_000_000_000,
        clock_ghz=1.965,
    ),
}


def target_config(gpu: Gpu) -> str:
    """The text of a stream_executor.GpuTargetConfigProto."""
    major, minor = gpu.compute_capability
    # Limits that all of these generations share come first.
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: 2048
  shared_memory_per_block: {48 << 10}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: {2**31 - 1}
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  core_count: {gpu.multiprocessors}
  fpus_per_core: {gpu.fp32_lanes}
  shared_memory_per_core: {gpu.shared_memory}
  shared_memory_per_block_optin: {gpu.shared_memory_of_block}
  l2_cache_size: {gpu.l2_cache}
  device_memory_size: {gpu.memory}
  memory_bandwidth: {gpu.memory_bandwidth}
  clock_rate_ghz: {gpu.clock_ghz}
}}
platform_name: "CUDA"
device_description_str: "{gpu.name}"
"""
