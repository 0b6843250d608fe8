// Tensors that leave the graph: they go from rank to rank through the memory of the host.
#pragma once

#include <ATen/core/Tensor.h>

#include "lowering/collective.h"

namespace xla_cc {

// To be called for each send and recv on a channel that names no ranks, before its tensor is moved.
// It is counted, recorded, and subject to the policy, as a fallback is. Throws FallbackForbidden.
void ThroughHost(Op op, int64_t channel, const at::Tensor& tensor);

}  // namespace xla_cc
