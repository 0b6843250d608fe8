// c10d's operators on XLA tensors.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace xla_cc {

// Registers them, for the life of the process. Once.
void RegisterKernels();
// Those of functional collectives alone; the first calls it.
void RegisterFunctionalKernels();

// What of a group carries what is on XLA devices.
inline c10::intrusive_ptr<c10d::Backend> BackendOf(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  return group->getBackend(c10::DeviceType::XLA);
}

}  // namespace xla_cc
