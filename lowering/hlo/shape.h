// Array shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowering/hlo/element_type.h"
#include "lowering/hlo/wire.h"

namespace xla_cc::hlo {

// An array's shape; the layout is always row major.
struct Shape {
  ElementType type = ElementType::kF32;
  std::vector<int64_t> dims;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t Elements() const;
  int64_t Bytes() const { return Elements() * (Bits(type) / 8); }
  std::string ToString() const;  // f32[4,8]
  WireMessage ToProto() const;
  bool operator==(const Shape& other) const { return type == other.type && dims == other.dims; }
  bool operator!=(const Shape& other) const { return !(*this == other); }
};

std::string ToString(const std::vector<int64_t>& values);  // 1,2,3
// Reads back to the same bits, and is short for the usual numbers.
std::string ToString(double value);

}  // namespace xla_cc::hlo
