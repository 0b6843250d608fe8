// The reduce kinds, and which types have which.
#pragma once

#include <optional>
#include <string>

#include "lowering/hlo/shape.h"
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
};

}  // namespace xla_cc
