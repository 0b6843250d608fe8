// The types of elements, from one table: element_types.def.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace xla_cc::hlo {

enum class TypeClass { kBool, kSigned, kUnsigned, kFloat, kFloat8, kComplex };

enum class ElementType : int {
#define TYPE(enumerator, number, name, bits, type_class, torch) enumerator = number,
#include "lowering/hlo/element_types.def"
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

}  // namespace xla_cc::hlo
