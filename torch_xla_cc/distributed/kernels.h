// c10d's operators on XLA tensors.
#pragma once

namespace xla_cc {

// Registers them, for the life of the process. Once.
void RegisterKernels();

}  // namespace xla_cc
