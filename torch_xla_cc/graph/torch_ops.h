// torch.ops.xla_cc.*: the collectives for the dispatcher, so that FakeTensor and torch.compile see
// them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lowering/collective.h"

namespace xla_cc {

// Registers the schemas and the XLA and Meta kernels, at import of the extension; and in place of
// torch_xla's own all_reduce of all ranks ours, as that pins its layout, and XLA takes no program
// in which some all-reduces are pinned and some are not.
void RegisterTorchOps();
// Calls a collective through the dispatcher: for tensor subclasses and modes.
std::vector<at::Tensor> CallThroughDispatcher(const Collective& collective,
                                              const std::vector<at::Tensor>& tensors);

// Over all ranks. `kind`: "sum", or another that c10d's operators know.
at::Tensor AllReduceOfWorld(const at::Tensor& x, const std::string& kind);

}  // namespace xla_cc
