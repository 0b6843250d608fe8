// What surrounds a reducing instruction.
#pragma once

#include "lowering/hlo/builder.h"
#include "lowering/model/groups.h"
#include "lowering/model/reduction.h"
#include "lowering/rules/emitter.h"

namespace xla_cc {

// factor * x, before the instruction; and scale * y, divided by the group for an average, after.
hlo::Value BeforeReducing(const Reduction& reduction, hlo::Computation& c, const hlo::Value& x);
hlo::Value AfterReducing(const Reduction& reduction, hlo::Computation& c, const hlo::Value& y,
                         const Groups& groups, int64_t world_size);

// What changes nothing under the instruction of a kind: 0 for a sum, infinity for a minimum.
hlo::Value Neutral(hlo::Computation& c, ReduceKind kind, hlo::ElementType type);

// x reduced over dimension 0, which has one entry for each position of a group. Positions that this
// rank's group does not have are left out.
hlo::Value ReducePositions(Emitter& e, const hlo::Value& x, ReduceKind kind, const Groups& groups);

}  // namespace xla_cc
