#include "lowering/model/reduction.h"

#include <cmath>
#include <limits>

#include "lowering/errors.h"

namespace xla_cc {

using hlo::ElementType;
using hlo::TypeClass;

std::string Name(ReduceKind kind) {
  switch (kind) {
#define REDUCE(enumerator, name, opcode) \
  case ReduceKind::enumerator:           \
    return name;
    XLA_CC_REDUCE_KINDS(REDUCE)
#undef REDUCE
  }
  return "invalid";
}

std::string ReducerOpcode(ReduceKind kind) {
  switch (kind) {
#define REDUCE(enumerator, name, opcode) \
  case ReduceKind::enumerator:           \
    return opcode;
    XLA_CC_REDUCE_KINDS(REDUCE)
#undef REDUCE
  }
  return "invalid";
}

std::optional<ReduceKind> ReduceKindFromName(const std::string& name) {
#define REDUCE(enumerator, text, opcode) \
  if (name == text) return ReduceKind::enumerator;
  XLA_CC_REDUCE_KINDS(REDUCE)
#undef REDUCE
  if (name == "mul") return ReduceKind::kProduct;  // torch_xla's REDUCE_MUL
  return std::nullopt;
}

namespace {

// Of a type's finite values. Integers are checked apart.
double Largest(ElementType type) {
  switch (type) {
    case ElementType::kF8E4M3FN:
      return 448;
    case ElementType::kF8E5M2:
      return 57344;
    case ElementType::kF16:
      return 65504;
    case ElementType::kBF16:
      return 0x1.FEp127;
    case ElementType::kF64:
    case ElementType::kC128:
      return std::numeric_limits<double>::max();
    default:
      return std::numeric_limits<float>::max();
  }
}

}  // namespace

Status Reduction::Verify(const std::string& op, const hlo::Shape& operand) const {
  const TypeClass type = hlo::Class(operand.type);
  const std::string shape = operand.ToString();
  const bool bitwise =
      kind == ReduceKind::kAnd || kind == ReduceKind::kOr || kind == ReduceKind::kXor;
  const bool integral = hlo::IsIntegral(operand.type);
  if (bitwise && !integral && type != TypeClass::kBool) {
    return Refuse({"R1", op, "reduce_type", Name(kind),
                   "a kind that " + shape + " has; and, or, xor work on integers and bool",
                   "Use sum, product, min or max, or view the tensor as an integer type"});
  }
  if ((kind == ReduceKind::kMin || kind == ReduceKind::kMax) && type == TypeClass::kComplex) {
    return Refuse({"R2", op, "reduce_type", Name(kind),
                   "a kind that " + shape + " has; complex numbers have no order",
                   "Reduce torch.view_as_real(tensor), or its absolute values"});
  }
  if (kind == ReduceKind::kAverage && type == TypeClass::kBool) {
    return Refuse({"R3", op, "reduce_type", Name(kind),
                   "a kind that " + shape + " has; truth values have no average",
                   "Convert the tensor to a number type first"});
  }
  for (const auto& [name, value] : {std::pair{"scale", scale}, std::pair{"factor", factor}}) {
    const bool exact = std::floor(value) == value && std::abs(value) < 2147483648.0;
    const bool held = std::abs(value) <= Largest(operand.type);  // false for nan
    if (!held || ((integral || type == TypeClass::kBool) && !exact)) {
      return Refuse({"R4", op, name, hlo::ToString(value),
                     "a finite number, and a whole one of 32 bits for " + shape,
                     "Scale a floating point tensor, or divide the result"});
    }
    if (value != 1.0 && type == TypeClass::kBool) {
      return Refuse({"R4", op, name, hlo::ToString(value), "1 for truth values",
                     "Convert the tensor to a number type first"});
    }
  }
  if (factor != 1.0 && kind != ReduceKind::kPremultipliedSum) {
    return Refuse({"R4", op, "factor", hlo::ToString(factor),
                   "1 unless reduce_type is premultiplied_sum", "Use scale for the result"});
  }
  return Status::Ok();
}

ReduceKind Reduction::InstructionKind() const {
  return kind == ReduceKind::kAverage || kind == ReduceKind::kPremultipliedSum ? ReduceKind::kSum
                                                                               : kind;
}

}  // namespace xla_cc
