// Reductions in a type that the device reduces, for those that it does not.
#pragma once

#include <functional>
#include <vector>

#include "lowering/hlo/builder.h"
#include "lowering/model/reduction.h"

namespace xla_cc {

// `split` gives values of `type`, which are reduced by `kind`, one by one; `join` makes the result
// of theirs. Exact, but for narrow floats: they are reduced in f32 and rounded once, at the end.
struct OtherType {
  hlo::ElementType type;
  ReduceKind kind;
  std::function<hlo::Values(hlo::Computation&, const hlo::Value&)> split;
  std::function<hlo::Value(hlo::Computation&, const hlo::Values&)> join;
};

// In the order of preference.
std::vector<OtherType> OtherTypes(ReduceKind kind, hlo::ElementType type);

}  // namespace xla_cc
