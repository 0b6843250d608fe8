// What a collective is lowered for: the running device, or one that is far away.
#pragma once

#include <cstdint>
#include <string>

#include "lowering/status.h"
#include "lowering/topology.h"

namespace xla_cc {

// kPod: XLA:CPU in a process for each rank, which run one program (docs/pod.md).
enum class DeviceKind { kCpu, kPod, kTpu, kGpu, kNeuron, kOther };

struct Target {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name = "cpu";    // cpu, pod, tpu:v5e:2x4, gpu:h100x8, spmd:tpu:v5e:2x4, ...
  std::string device = "cpu";  // the kind and the generation of it: cpu, tpu, tpu:v5e, gpu:h100
  int64_t world_size = 1;
  Topology topology;  // of a TPU, if it is known
  // Ranks are the partitions of one program (torch_xla's SPMD mode), in a region that is sharded by
  // hand, and not its replicas.
  bool partitioned = false;

  // Ranks that are threads of one process, each compiling its own program: XLA:CPU. There ranks
  // meet by channel and order has to be made (docs/spec.md, "Ordering").
  bool RanksAreThreads() const {
    return kind == DeviceKind::kCpu && world_size > 1 && !partitioned;
  }
  // Ranks that each trace a program of their own, and so must say in which order they call:
  // threads, and the processes of a pod, whose device process makes the order (docs/pod.md).
  bool CallsTakeTokens() const {
    return RanksAreThreads() || (kind == DeviceKind::kPod && world_size > 1 && !partitioned);
  }
  // Whether a group's members may run what the other ranks do not: then they must meet nobody else.
  // Ranks on threads may, and those of a pod, of which only members call a group of
  // torch.distributed.
  bool OnlyMembersMeet() const {
    return RanksAreThreads() || (kind == DeviceKind::kPod && !partitioned);
  }
  std::string ToString() const { return name + "/" + std::to_string(world_size); }
};

// Reads "cpu", "tpu:v5e:2x4", "gpu:h100x8"; a topology gives the world size when none is given (0).
// With "spmd:" before it, ranks are partitions.
Result<Target> ParseTarget(const std::string& name, int64_t world_size);

}  // namespace xla_cc
