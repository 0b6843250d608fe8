// torch.ops.xla_cc.*: the collectives for the dispatcher, so that FakeTensor and torch.compile see
// them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lowering/collective.h"

namespace xla_cc {

// Registers the schemas and the XLA and Meta kernels; at import of the extension.
void RegisterTorchOps();
// Calls a collective through the dispatcher: for tensor subclasses and modes.
std::vector<at::Tensor> CallThroughDispatcher(const Collective& collective,
                                              const std::vector<at::Tensor>& tensors);

}  // namespace xla_cc
