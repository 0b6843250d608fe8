// Writer for protobuf's wire format, the few parts of it that HLO needs.
//
// We only ever write, a few messages deep, so this takes the place of a protobuf library, which
// would clash with the copies inside torch and _XLAC. Fields are kept by number, so the bytes are
// those that protobuf itself writes (ascending field numbers, zero values left out) whatever the
// order of the calls.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace xla_cc::hlo {

class WireMessage {
 public:
  // A number; zero is the default of proto3 and is not written.
  WireMessage& Int(int field, int64_t value) {
    if (value != 0) fields_[field] = Tag(field, kVarint) + Varint(value);
    return *this;
  }
  // A string, a bytes field, or one more element of a repeated one.
  WireMessage& Bytes(int field, const std::string& value) {
    fields_[field] += Tag(field, kLength) + Varint(value.size()) + value;
    return *this;
  }
  // A sub-message, or one more element of a repeated one.
  WireMessage& Sub(int field, const WireMessage& value) { return Bytes(field, value.Serialize()); }
  // A packed list of numbers.
  WireMessage& Packed(int field, const std::vector<int64_t>& values) {
    std::string body;
    for (int64_t value : values) body += Varint(value);
    if (!body.empty()) Bytes(field, body);
    return *this;
  }
  // A packed list of fixed-width values, as they lie in memory (this machine is little endian, as
  // the format is).
  template <class T>
  WireMessage& PackedRaw(int field, const std::vector<T>& values) {
    std::string body(values.size() * sizeof(T), '\0');
    if (!values.empty()) std::memcpy(body.data(), values.data(), body.size());
    if (!body.empty()) Bytes(field, body);
    return *this;
  }

  WireMessage& Merge(const WireMessage& other) {
    for (const auto& [field, bytes] : other.fields_) fields_[field] += bytes;
    return *this;
  }

  std::string Serialize() const {
    std::string out;
    for (const auto& [field, bytes] : fields_) out += bytes;
    return out;
  }

 private:
  enum WireType { kVarint = 0, kLength = 2 };
  static std::string Tag(int field, WireType type) {
    return Varint(static_cast<uint64_t>(field) << 3 | type);
  }
  static std::string Varint(uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
    return out;
  }

  std::map<int, std::string> fields_;
};

}  // namespace xla_cc::hlo
