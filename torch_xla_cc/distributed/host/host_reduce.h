// Reductions on the host: what gloo does, and the rest.
#pragma once

#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "torch_xla_cc/distributed/transport.h"

namespace xla_cc {

// The operation that gloo is asked for instead; none if it cannot do it for that type.
std::optional<c10d::ReduceOp> CarriedByGloo(const c10d::ReduceOp& op, at::ScalarType type);
// What gloo is given and gives, of values that are this call's own: scaled before, divided after.
at::Tensor Prepared(at::Tensor x, const c10d::ReduceOp& op);
at::Tensor Completed(at::Tensor x, const c10d::ReduceOp& op, at::ScalarType type, int size);
// The reduction of the ranks' values, in their order. As docs/spec.md says under Reductions.
at::Tensor ReducedHere(const Tensors& by_rank, const c10d::ReduceOp& op);

}  // namespace xla_cc
