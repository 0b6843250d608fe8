// What a rank and its device process say: a head, and fields in the order that both know.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "pod/failure.h"

namespace xla_cc::pod {

enum class Kind : uint32_t {
#define KIND(name, number) k##name = number,
#include "pod/wire/kinds.def"
#undef KIND
};

struct MessageHead {
  uint64_t size = 0;  // of what follows
  Kind kind = Kind::kAnswer;
  uint32_t unused = 0;
  uint64_t request = 0;  // the answer has the same; 0: there is none
};
static_assert(sizeof(MessageHead) == 24);

// Numbers are of 8 bytes, little endian; lists and texts begin with their size.
class Writer {
 public:
  Writer& Int(int64_t value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Writer& Text(std::string_view text) {
    Int(static_cast<int64_t>(text.size()));
    bytes_.append(text);
    return *this;
  }
  Writer& Ints(const std::vector<int64_t>& values) {
    Int(static_cast<int64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// What it reads must live on. Throws on a message that ends too early.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  int64_t Int() {
    int64_t value;
    std::memcpy(&value, Take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::string_view Text() { return Take(static_cast<size_t>(Int())); }
  std::vector<int64_t> Ints() {
    const auto size = static_cast<size_t>(Int());
    if (size > left_.size() / sizeof(int64_t)) Take(left_.size() + 1);
    std::vector<int64_t> values(size);
    const std::string_view bytes = Take(size * sizeof(int64_t));
    if (size > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  std::string_view Take(size_t size) {
    if (size > left_.size()) {
      throw Failure(abi::Code::kInternal, "a message of the device process ends too early");
    }
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }

  std::string_view left_;
};

}  // namespace xla_cc::pod
