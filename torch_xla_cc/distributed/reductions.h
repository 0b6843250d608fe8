// c10d's reduce operations as ours.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "lowering/model/reduction.h"

namespace xla_cc {

// Throws BadValue for what has no like here.
Reduction ReductionOf(const c10d::ReduceOp& op);
// The other way round.
c10d::ReduceOp ReduceOpOf(const Reduction& reduction);
// What numbers of a type are multiplied by: of whole ones a whole number, which (R4) has asked for.
at::Scalar FactorFor(double factor, at::ScalarType type);
// "SUM", as in torch.distributed.ReduceOp.
std::string NameOf(const c10d::ReduceOp& op);
// The same, with the factor if there is one.
std::string TextOf(const c10d::ReduceOp& op);

}  // namespace xla_cc
