#include "pod/memory/reduction.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <complex>
#include <cstring>
#include <functional>
#include <type_traits>

namespace xla_cc::pod::memory {
namespace {

constexpr size_t kBlock = 1024;  // elements, which stay in the cache

template <typename T, bool kLargest>
struct Extreme {
  T operator()(T so_far, T next) const {
    if constexpr (std::is_floating_point_v<T>) {
      const bool equal = next == so_far;
      const bool less = equal ? std::signbit(next) : next < so_far;
      const bool take = std::isnan(so_far) || (!std::isnan(next) && less != kLargest);
      return take ? next : so_far;
    } else {
      return kLargest ? std::max(so_far, next) : std::min(so_far, next);
    }
  }
};

// Integers wrap around, as XLA's do: they are computed as unsigned ones, of no less than an int.
template <typename T, bool kIsIntegral = std::is_integral_v<T>>
struct Computed {
  using type = T;
};
template <typename T>
struct Computed<T, true> {
  using type = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
};

template <typename T, typename Op>
void Fold(const std::vector<const std::byte*>& given, std::byte* result, size_t count) {
  T block[kBlock];
  T next[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t now = std::min(kBlock, count - begin);
    const size_t offset = begin * sizeof(T), bytes = now * sizeof(T);
    std::memcpy(block, given[0] + offset, bytes);
    for (size_t rank = 1; rank < given.size(); ++rank) {
      std::memcpy(next, given[rank] + offset, bytes);
      for (size_t i = 0; i < now; ++i) block[i] = static_cast<T>(Op()(block[i], next[i]));
    }
    std::memcpy(result + offset, block, bytes);
  }
}

template <typename T>
bool OfType(Reduction reduction, const std::vector<const std::byte*>& given, std::byte* result,
            size_t count) {
  using Number = typename Computed<T>::type;
  switch (reduction) {
    case Reduction::kSum:
      Fold<T, std::plus<Number>>(given, result, count);
      return true;
    case Reduction::kProduct:
      Fold<T, std::multiplies<Number>>(given, result, count);
      return true;
    default:
      break;
  }
  if constexpr (std::is_arithmetic_v<T>) {
    switch (reduction) {
      case Reduction::kMinimum:
        Fold<T, Extreme<T, false>>(given, result, count);
        return true;
      case Reduction::kMaximum:
        Fold<T, Extreme<T, true>>(given, result, count);
        return true;
      default:
        break;
    }
  }
  return false;
}

// As IEEE has them, small numbers too, whatever the calling thread has chosen: ranks that reduce
// the same get the same.
class Plainly {
 public:
  Plainly() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~Plainly() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
};

// Calls `with(T())` of the C++ type.
template <typename With>
auto Typed(Type type, const With& with) -> decltype(with(int())) {
  switch (type) {
    case Type::kInt8:
      return with(int8_t());
    case Type::kByte:
    case Type::kUint8:
      return with(uint8_t());
    case Type::kInt16:
      return with(int16_t());
    case Type::kUint16:
      return with(uint16_t());
    case Type::kInt32:
      return with(int32_t());
    case Type::kUint32:
      return with(uint32_t());
    case Type::kInt64:
      return with(int64_t());
    case Type::kUint64:
      return with(uint64_t());
    case Type::kFloat:
      return with(float());
    case Type::kDouble:
      return with(double());
    case Type::kComplexFloat:
      return with(std::complex<float>());
    case Type::kComplexDouble:
      return with(std::complex<double>());
  }
  return {};
}

}  // namespace

size_t SizeOf(Type type) {
  return Typed(type, [](auto zero) { return sizeof(zero); });
}

bool Reduce(Type type, Reduction reduction, const std::vector<const std::byte*>& given,
            std::byte* result, size_t count) {
  const Plainly plainly;
  return Typed(type,
               [&](auto zero) { return OfType<decltype(zero)>(reduction, given, result, count); });
}

}  // namespace xla_cc::pod::memory
