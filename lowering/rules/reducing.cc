#include "lowering/rules/reducing.h"

#include <algorithm>

#include "lowering/rules/by_rank.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::Shape;
using hlo::TypeClass;
using hlo::Value;

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

// Floats of less than 32 bits, which are added up in f32 and rounded once.
bool IsRounded(ElementType type) {
  return hlo::IsFloat8(type) || (hlo::Class(type) == TypeClass::kFloat && hlo::Bits(type) < 32);
}

}  // namespace

Value BeforeReducing(const Reduction& reduction, Computation& c, const Value& x) {
  return Times(c, x, reduction.factor);
}

Value AfterReducing(const Reduction& reduction, Computation& c, const Value& y,
                    const Groups& groups, int64_t world_size) {
  Value result = y;
  if (reduction.kind == ReduceKind::kAverage) {
    const ElementType type = DivisorType(y.shape.type);
    std::vector<int64_t> sizes = groups.Sizes(world_size);
    for (int64_t& size : sizes) size = std::max<int64_t>(size, 1);  // in no group: a group of one
    const Value size = groups.Uniform() && groups.Covers(world_size)
                           ? c.Scalar(type, static_cast<double>(groups.Size(world_size)))
                           : c.Convert(ByRank(c, sizes), type);
    const Value wide = c.Convert(y, type);
    result = c.Convert(c.Binary("divide", wide, c.Broadcast(size, wide.shape, {})), y.shape.type);
  }
  return Times(c, result, reduction.scale);
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

Value ReducePositions(Emitter& e, const Value& x, ReduceKind kind, const Groups& groups) {
  Computation& c = e.c();
  const bool adds = kind == ReduceKind::kSum || kind == ReduceKind::kProduct;
  const ElementType type = x.shape.type;
  if (adds && IsRounded(type)) {
    const Value reduced = ReducePositions(e, c.Convert(x, ElementType::kF32), kind, groups);
    return c.Convert(reduced, type);
  }
  const Value neutral = Neutral(c, kind, type);
  Value present = x;
  if (!groups.Uniform()) {
    const std::vector<int64_t> sizes = groups.Sizes(e.world_size());
    const Shape positions{ElementType::kS32, x.shape.dims};
    const Value mask = c.Compare("LT", c.Iota(positions, 0), c.Fill(ByRank(c, sizes), positions));
    present = c.Select(mask, x, c.Fill(neutral, x.shape));
  }
  return c.Reduce(present, neutral, 0, e.module().Reducer(ReducerOpcode(kind), type));
}

}  // namespace xla_cc
