// Sums, products, minima and maxima of several ranks' numbers, in the order of the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xla_cc::pod::memory {

// As XLA names them to MPI.
enum class Type : uint32_t {
  kByte = 1,
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat,
  kDouble,
  kComplexFloat,
  kComplexDouble,
};
enum class Reduction : uint32_t { kNone, kSum, kProduct, kMinimum, kMaximum };

// Of an element; 0 of what is no type.
size_t SizeOf(Type type);

// `result` may be one of `given`. NaNs are left out of minima and maxima, as gloo does, and -0 is
// less than 0. False if there is no such reduction of the type.
bool Reduce(Type type, Reduction reduction, const std::vector<const std::byte*>& given,
            std::byte* result, size_t count);

}  // namespace xla_cc::pod::memory
