#include "lowering/hlo/shape.h"

#include <cstdio>
#include <cstdlib>

namespace xla_cc::hlo {

std::string_view Name(ElementType type) {
  switch (type) {
#define TYPE(enumerator, number, name, bits, type_class) \
  case ElementType::enumerator:                          \
    return name;
    XLA_CC_ELEMENT_TYPES(TYPE)
#undef TYPE
  }
  return "invalid";
}

int Bits(ElementType type) {
  switch (type) {
#define TYPE(enumerator, number, name, bits, type_class) \
  case ElementType::enumerator:                          \
    return bits;
    XLA_CC_ELEMENT_TYPES(TYPE)
#undef TYPE
  }
  return 0;
}

TypeClass Class(ElementType type) {
  switch (type) {
#define TYPE(enumerator, number, name, bits, type_class) \
  case ElementType::enumerator:                          \
    return TypeClass::type_class;
    XLA_CC_ELEMENT_TYPES(TYPE)
#undef TYPE
  }
  return TypeClass::kFloat;
}

std::optional<ElementType> ElementTypeFromNumber(int64_t number) {
  switch (number) {
#define TYPE(enumerator, number, name, bits, type_class) \
  case number:                                           \
    return ElementType::enumerator;
    XLA_CC_ELEMENT_TYPES(TYPE)
#undef TYPE
  }
  return std::nullopt;
}

int64_t Shape::Elements() const {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

std::string ToString(const std::vector<int64_t>& values) {
  std::string out;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(values[i]);
  }
  return out;
}

std::string ToString(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  if (std::strtod(text, nullptr) != value) std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

std::string Shape::ToString() const {
  return std::string(Name(type)) + "[" + hlo::ToString(dims) + "]";
}

Message Shape::ToProto() const {
  std::vector<int64_t> minor_to_major;
  for (int64_t dim = rank() - 1; dim >= 0; --dim) minor_to_major.push_back(dim);
  Message layout;
  layout.Packed(1, minor_to_major);
  return Message().Int(2, static_cast<int>(type)).Packed(3, dims).Sub(5, layout);
}

}  // namespace xla_cc::hlo
