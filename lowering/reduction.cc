#include "lowering/reduction.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lowering/errors.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::TypeClass;
using hlo::Value;

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

namespace {

Value Times(Computation& c, const Value& x, double factor) {
  if (factor == 1.0) return x;
  return c.Binary("multiply", x, c.Broadcast(c.Scalar(x.shape.type, factor), x.shape, {}));
}

// A type of the same class that holds the size of any group: a u8 has no 256.
ElementType DivisorType(ElementType type) {
  if (hlo::Bits(type) >= 32) return type;
  switch (hlo::Class(type)) {
    case TypeClass::kSigned:
      return ElementType::kS32;
    case TypeClass::kUnsigned:
      return ElementType::kU32;
    default:
      return ElementType::kF32;
  }
}

}  // namespace

Value Reduction::Before(Computation& c, const Value& x) const { return Times(c, x, factor); }

Value Reduction::After(Computation& c, const Value& y, const Groups& groups,
                       int64_t world_size) const {
  Value result = y;
  if (kind == ReduceKind::kAverage) {
    const ElementType type = DivisorType(y.shape.type);
    std::vector<int64_t> sizes = groups.Sizes(world_size);
    for (int64_t& size : sizes) size = std::max<int64_t>(size, 1);  // in no group: a group of one
    const Value size = groups.Uniform() && groups.Covers(world_size)
                           ? c.Scalar(type, static_cast<double>(groups.Size(world_size)))
                           : c.Convert(ByRank(c, sizes), type);
    const Value wide = c.Convert(y, type);
    result = c.Convert(c.Binary("divide", wide, c.Broadcast(size, wide.shape, {})), y.shape.type);
  }
  return Times(c, result, scale);
}

Value Neutral(Computation& c, ReduceKind kind, ElementType type) {
  switch (kind) {
    case ReduceKind::kProduct:
      return c.Scalar(type, 1);
    case ReduceKind::kMin:
      return c.Extreme(type, /*largest=*/true);
    case ReduceKind::kMax:
      return c.Extreme(type, /*largest=*/false);
    case ReduceKind::kAnd:
      return c.Unary("not", c.Scalar(type, 0));
    default:
      return c.Scalar(type, 0);
  }
}

Value ByRank(Computation& c, const std::vector<int64_t>& table) {
  const Value rank = c.Convert(c.Rank(), ElementType::kS32);
  return c.Reshape(c.DynamicSlice(c.Table(table), {rank}, {1}), {});
}

}  // namespace xla_cc
