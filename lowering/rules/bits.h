// Data movement on the bits, for devices that move a value by adding zeros to it, or by a
// selection: on floats these would turn -0.0 into 0.0 and quieten NaNs.
#pragma once

#include "lowering/hlo/builder.h"

namespace xla_cc {

// The unsigned integer type of the same width; complex types, of their parts.
inline hlo::ElementType BitsType(hlo::ElementType type) {
  switch (hlo::Bits(type) / (hlo::IsComplex(type) ? 2 : 1)) {
    case 8:
      return hlo::ElementType::kU8;
    case 16:
      return hlo::ElementType::kU16;
    case 32:
      return hlo::ElementType::kU32;
    default:
      return hlo::ElementType::kU64;
  }
}

// A type of the same bits that a compiler moves as they are: XLA:CPU selects, updates, pads and
// concatenates narrow floats as f32, and so quietens NaNs.
inline hlo::ElementType PlainType(hlo::ElementType type) {
  const hlo::TypeClass kind = hlo::Class(type);
  const bool is_float = kind == hlo::TypeClass::kFloat || kind == hlo::TypeClass::kFloat8;
  return is_float ? BitsType(type) : type;
}

// f of x in that type, back in x's type.
template <class Function>
hlo::Value AsPlain(hlo::Computation& c, const hlo::Value& x, const Function& f) {
  return c.BitcastConvert(f(c.BitcastConvert(x, PlainType(x.shape.type))), x.shape.type);
}

// f(x's bits as unsigned integers), back in x's type. f keeps the type. A complex x is two calls.
template <class Function>
hlo::Value MapBits(hlo::Computation& c, const hlo::Value& x, const Function& f) {
  const hlo::ElementType type = x.shape.type;
  if (hlo::IsComplex(type)) {
    const hlo::Value real = MapBits(c, c.ComplexPart("real", x), f);
    return c.Complex(real, MapBits(c, c.ComplexPart("imag", x), f));
  }
  if (type == hlo::ElementType::kPred) {
    return c.Convert(f(c.Convert(x, hlo::ElementType::kU8)), type);
  }
  return c.BitcastConvert(f(c.BitcastConvert(x, BitsType(type))), type);
}

}  // namespace xla_cc
