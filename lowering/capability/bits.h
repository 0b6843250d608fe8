// Sets of types, kinds, forms and numbers of operands, as bits; and the kind in a device's name.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace xla_cc {

inline constexpr uint32_t kAny = ~0u;
template <class Enum>
constexpr uint32_t Bit(Enum value) {
  return 1u << static_cast<int>(value);
}
template <class Enum>
uint32_t Bits(const std::vector<Enum>& values) {
  uint32_t bits = values.empty() ? kAny : 0;
  for (const Enum value : values) bits |= Bit(value);
  return bits;
}

inline std::string_view KindOf(std::string_view device) {
  return device.substr(0, device.find(':'));
}

}  // namespace xla_cc
