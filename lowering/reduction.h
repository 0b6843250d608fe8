// The reduce kinds, and what surrounds the reducing instruction.
#pragma once

#include <optional>
#include <string>

#include "lowering/groups.h"
#include "lowering/hlo/builder.h"
#include "lowering/status.h"

namespace xla_cc {

// REDUCE(enumerator, name, HLO opcode of the reducer)
#define XLA_CC_REDUCE_KINDS(REDUCE)       \
  REDUCE(kSum, "sum", "add")              \
  REDUCE(kProduct, "product", "multiply") \
  REDUCE(kMin, "min", "minimum")          \
  REDUCE(kMax, "max", "maximum")          \
  REDUCE(kAnd, "and", "and")              \
  REDUCE(kOr, "or", "or")                 \
  REDUCE(kXor, "xor", "xor")              \
  REDUCE(kAverage, "average", "add")      \
  REDUCE(kPremultipliedSum, "premultiplied_sum", "add")

enum class ReduceKind : int {
#define REDUCE(enumerator, name, opcode) enumerator,
  XLA_CC_REDUCE_KINDS(REDUCE)
#undef REDUCE
};

std::string Name(ReduceKind kind);
std::string ReducerOpcode(ReduceKind kind);
std::optional<ReduceKind> ReduceKindFromName(const std::string& name);

// The reduction of an all_reduce or a reduce_scatter: scale * reduce(factor * x).
struct Reduction {
  ReduceKind kind = ReduceKind::kSum;
  double scale = 1.0;   // multiplies the result
  double factor = 1.0;  // multiplies each operand first; premultiplied_sum only

  // (R1) to (R4) of docs/spec.md.
  Status Verify(const std::string& op, const hlo::Shape& operand) const;
  // The kind that the instruction itself computes: sum for average and premultiplied_sum.
  ReduceKind InstructionKind() const;
  // factor * x, before the instruction; and scale * y, divided by the group for an average, after.
  hlo::Value Before(hlo::Computation& c, const hlo::Value& x) const;
  hlo::Value After(hlo::Computation& c, const hlo::Value& y, const Groups& groups,
                   int64_t world_size) const;
};

// What changes nothing under the instruction of a kind: 0 for a sum, infinity for a minimum.
hlo::Value Neutral(hlo::Computation& c, ReduceKind kind, hlo::ElementType type);

// A scalar that is looked up by this rank's number in a table with one entry a rank.
hlo::Value ByRank(hlo::Computation& c, const std::vector<int64_t>& table);

}  // namespace xla_cc
