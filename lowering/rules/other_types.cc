#include "lowering/rules/other_types.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::TypeClass;
using hlo::Value;
using hlo::Values;

namespace {

OtherType Converted(ReduceKind kind, ElementType from, ElementType to) {
  return {to, kind, [to](Computation& c, const Value& x) { return Values{c.Convert(x, to)}; },
          [from](Computation& c, const Values& ys) { return c.Convert(ys[0], from); }};
}

// Truth values as 0 and 1.
OtherType Counted(ReduceKind kind) {
  const bool parity = kind == ReduceKind::kXor;
  const bool any = kind == ReduceKind::kSum || kind == ReduceKind::kOr || kind == ReduceKind::kMax;
  const ReduceKind counted = parity ? ReduceKind::kSum : any ? ReduceKind::kMax : ReduceKind::kMin;
  OtherType other = Converted(counted, ElementType::kPred, ElementType::kS32);
  if (!parity) return other;
  other.join = [](Computation& c, const Values& ys) {
    const Value one = c.Fill(c.Scalar(ElementType::kS32, 1), ys[0].shape);
    return c.Convert(c.Binary("and", ys[0], one), ElementType::kPred);
  };
  return other;
}

// The same bits, signed; turned around zero where the order counts.
OtherType AsSigned(ReduceKind kind) {
  const bool ordered = kind == ReduceKind::kMin || kind == ReduceKind::kMax;
  const auto turn = [ordered](Computation& c, const Value& x) {
    if (!ordered) return x;
    return c.Binary("xor", x, c.Fill(c.Extreme(ElementType::kS64, /*largest=*/false), x.shape));
  };
  return {ElementType::kS64, kind,
          [turn](Computation& c, const Value& x) {
            return Values{turn(c, c.Convert(x, ElementType::kS64))};
          },
          [turn](Computation& c, const Values& ys) {
            return c.Convert(turn(c, ys[0]), ElementType::kU64);
          }};
}

// 64 bits as two times 32, for what looks at each bit alone.
OtherType InHalves(ReduceKind kind, ElementType type) {
  const auto shift = [](Computation& c, const char* opcode, const Value& x) {
    return c.Binary(opcode, x, c.Fill(c.Scalar(ElementType::kU64, 32), x.shape));
  };
  return {ElementType::kU32, kind,
          [shift](Computation& c, const Value& x) {
            const Value wide = c.Convert(x, ElementType::kU64);
            return Values{
                c.Convert(shift(c, "shift-right-logical", wide), ElementType::kU32),
                c.Convert(wide, ElementType::kU32),
            };
          },
          [shift, type](Computation& c, const Values& ys) {
            const Value high = shift(c, "shift-left", c.Convert(ys[0], ElementType::kU64));
            return c.Convert(c.Binary("or", high, c.Convert(ys[1], ElementType::kU64)), type);
          }};
}

OtherType InParts(ElementType type) {
  return {type == ElementType::kC64 ? ElementType::kF32 : ElementType::kF64, ReduceKind::kSum,
          [](Computation& c, const Value& x) {
            return Values{c.ComplexPart("real", x), c.ComplexPart("imag", x)};
          },
          [](Computation& c, const Values& ys) { return c.Complex(ys[0], ys[1]); }};
}

bool IsBitwise(ReduceKind kind) {
  return kind == ReduceKind::kAnd || kind == ReduceKind::kOr || kind == ReduceKind::kXor;
}

}  // namespace

std::vector<OtherType> OtherTypes(ReduceKind kind, ElementType type) {
  const bool narrow = hlo::Bits(type) < 32;
  switch (hlo::Class(type)) {
    case TypeClass::kBool:
      return {Counted(kind)};
    case TypeClass::kFloat8:
      return {Converted(kind, type, ElementType::kF32)};
    case TypeClass::kFloat:
      if (narrow) return {Converted(kind, type, ElementType::kF32)};
      return {};
    case TypeClass::kSigned:
      if (narrow) return {Converted(kind, type, ElementType::kS32)};
      if (type == ElementType::kS64 && IsBitwise(kind)) return {InHalves(kind, type)};
      return {};
    case TypeClass::kUnsigned:
      // 32 bits signed take them all, and are what compilers know best.
      if (narrow) return {Converted(kind, type, ElementType::kS32)};
      if (type == ElementType::kU64 && IsBitwise(kind)) return {InHalves(kind, type)};
      if (type == ElementType::kU64) return {AsSigned(kind)};
      return {};
    case TypeClass::kComplex:
      if (kind == ReduceKind::kSum) return {InParts(type)};
      return {};
  }
  return {};
}

}  // namespace xla_cc
