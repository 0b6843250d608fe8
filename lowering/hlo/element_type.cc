#include "lowering/hlo/element_type.h"

namespace xla_cc::hlo {

std::string_view Name(ElementType type) {
  switch (type) {
#define TYPE(enumerator, number, name, bits, type_class, torch) \
  case ElementType::enumerator:                                 \
    return name;
#include "lowering/hlo/element_types.def"
#undef TYPE
  }
  return "invalid";
}

int Bits(ElementType type) {
  switch (type) {
#define TYPE(enumerator, number, name, bits, type_class, torch) \
  case ElementType::enumerator:                                 \
    return bits;
#include "lowering/hlo/element_types.def"
#undef TYPE
  }
  return 0;
}

TypeClass Class(ElementType type) {
  switch (type) {
#define TYPE(enumerator, number, name, bits, type_class, torch) \
  case ElementType::enumerator:                                 \
    return TypeClass::type_class;
#include "lowering/hlo/element_types.def"
#undef TYPE
  }
  return TypeClass::kFloat;
}

std::optional<ElementType> ElementTypeFromNumber(int64_t number) {
  switch (number) {
#define TYPE(enumerator, number, name, bits, type_class, torch) \
  case number:                                                  \
    return ElementType::enumerator;
#include "lowering/hlo/element_types.def"
#undef TYPE
  }
  return std::nullopt;
}

}  // namespace xla_cc::hlo
