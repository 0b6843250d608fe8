// all_gather and reduce_scatter in forms of which the target's compiler keeps the instruction.
#pragma once

#include "lowering/rules/emitter.h"

namespace xla_cc {

// One instruction for all operands that are kept as they are; the others are reshaped, or go in
// stages, each for itself.
hlo::Values AllGatherKept(Emitter& e, const hlo::Values& xs, int64_t dim, const Groups& groups);
hlo::Values ReduceScatterKept(Emitter& e, const hlo::Values& xs, ReduceKind kind, int64_t dim,
                              const Groups& groups);

}  // namespace xla_cc
