#include "lowering/hlo/rounded.h"

#include <algorithm>
#include <cmath>

namespace xla_cc::hlo {

double Rounded(ElementType type, double value) {
  int digits = 0;  // of the significand, and the exponent of the least normal number
  int least = 0;
  switch (type) {
    case ElementType::kF8E4M3FN:
      digits = 4, least = -6;
      break;
    case ElementType::kF8E5M2:
      digits = 3, least = -14;
      break;
    case ElementType::kF16:
      digits = 11, least = -14;
      break;
    case ElementType::kBF16:
      digits = 8, least = -126;
      break;
    default:
      return value;
  }
  const double single = static_cast<float>(value);
  if (single == 0 || !std::isfinite(single)) return single;
  const double step = std::ldexp(1.0, std::max(std::ilogb(single), least) - (digits - 1));
  return std::nearbyint(single / step) * step;
}

}  // namespace xla_cc::hlo
