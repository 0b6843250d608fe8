#include "lowering/hlo/shape.h"

#include <cstdio>
#include <cstdlib>

namespace xla_cc::hlo {

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

WireMessage Shape::ToProto() const {
  std::vector<int64_t> minor_to_major;
  for (int64_t dim = rank() - 1; dim >= 0; --dim) minor_to_major.push_back(dim);
  WireMessage layout;
  layout.Packed(1, minor_to_major);
  return WireMessage().Int(2, static_cast<int>(type)).Packed(3, dims).Sub(5, layout);
}

}  // namespace xla_cc::hlo
