// Types of elements: their sizes, in memory of the host as on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "pod/failure.h"

namespace xla_cc::pod {

inline size_t SizeOf(abi::Type type) {
  switch (type) {
    case abi::Type::kPred:
    case abi::Type::kS8:
    case abi::Type::kU8:
    case abi::Type::kF8E5M2:
    case abi::Type::kF8E4M3FN:
    case abi::Type::kF8E4M3B11FNUZ:
    case abi::Type::kF8E5M2FNUZ:
    case abi::Type::kF8E4M3FNUZ:
      return 1;
    case abi::Type::kS16:
    case abi::Type::kU16:
    case abi::Type::kF16:
    case abi::Type::kBF16:
      return 2;
    case abi::Type::kS32:
    case abi::Type::kU32:
    case abi::Type::kF32:
      return 4;
    case abi::Type::kS64:
    case abi::Type::kU64:
    case abi::Type::kF64:
    case abi::Type::kC64:
      return 8;
    case abi::Type::kC128:
      return 16;
    case abi::Type::kInvalid:
      break;
  }
  throw Failure(abi::Code::kUnimplemented,
                "PJRT_Buffer_Type " + std::to_string(static_cast<int>(type)) +
                    " is not implemented by the pod: it takes integers of 8 to 64 bits, bool, "
                    "bfloat16, floats of 8 to 64 bits, complex64 and complex128");
}

inline size_t BytesOf(abi::Type type, const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), SizeOf(type),
                         [](size_t product, int64_t dim) { return product * size_t(dim); });
}

}  // namespace xla_cc::pod
