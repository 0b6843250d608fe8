// Element types and array shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lowering/hlo/wire.h"

namespace xla_cc::hlo {

enum class TypeClass { kBool, kSigned, kUnsigned, kFloat, kFloat8, kComplex };

// TYPE(enumerator, XLA's PrimitiveType number, name in HLO text, bits, class)
#define XLA_CC_ELEMENT_TYPES(TYPE)        \
  TYPE(kPred, 1, "pred", 8, kBool)        \
  TYPE(kS8, 2, "s8", 8, kSigned)          \
  TYPE(kS16, 3, "s16", 16, kSigned)       \
  TYPE(kS32, 4, "s32", 32, kSigned)       \
  TYPE(kS64, 5, "s64", 64, kSigned)       \
  TYPE(kU8, 6, "u8", 8, kUnsigned)        \
  TYPE(kU16, 7, "u16", 16, kUnsigned)     \
  TYPE(kU32, 8, "u32", 32, kUnsigned)     \
  TYPE(kU64, 9, "u64", 64, kUnsigned)     \
  TYPE(kF16, 10, "f16", 16, kFloat)       \
  TYPE(kF32, 11, "f32", 32, kFloat)       \
  TYPE(kF64, 12, "f64", 64, kFloat)       \
  TYPE(kC64, 15, "c64", 64, kComplex)     \
  TYPE(kBF16, 16, "bf16", 16, kFloat)     \
  TYPE(kC128, 18, "c128", 128, kComplex)  \
  TYPE(kF8E5M2, 19, "f8e5m2", 8, kFloat8) \
  TYPE(kF8E4M3FN, 20, "f8e4m3fn", 8, kFloat8)

enum class ElementType : int {
#define TYPE(enumerator, number, name, bits, type_class) enumerator = number,
  XLA_CC_ELEMENT_TYPES(TYPE)
#undef TYPE
};

std::string_view Name(ElementType type);
int Bits(ElementType type);
TypeClass Class(ElementType type);
std::optional<ElementType> ElementTypeFromNumber(int64_t number);

// True for the types whose bits can be added and shifted: what and, or, xor need.
inline bool IsIntegral(ElementType type) {
  return Class(type) == TypeClass::kSigned || Class(type) == TypeClass::kUnsigned;
}
inline bool IsComplex(ElementType type) { return Class(type) == TypeClass::kComplex; }
inline bool IsFloat8(ElementType type) { return Class(type) == TypeClass::kFloat8; }

// An array's shape; the layout is always row major.
struct Shape {
  ElementType type = ElementType::kF32;
  std::vector<int64_t> dims;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t Elements() const;
  int64_t Bytes() const { return Elements() * Bits(type) / 8; }
  std::string ToString() const;  // f32[4,8]
  Message ToProto() const;
  bool operator==(const Shape& other) const { return type == other.type && dims == other.dims; }
  bool operator!=(const Shape& other) const { return !(*this == other); }
};

std::string ToString(const std::vector<int64_t>& values);  // 1,2,3
// Reads back to the same bits, and is short for the usual numbers.
std::string ToString(double value);

}  // namespace xla_cc::hlo
