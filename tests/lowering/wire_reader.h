// Reads protobuf's wire format back, for tests of what lowering/ writes. Python's tests decode the
// same bytes with protobuf itself.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace xla_cc {

// One message: its fields by number, in the order of their appearance.
class WireReader {
 public:
  explicit WireReader(const std::string& bytes) {
    int last = 0;
    for (size_t at = 0; at < bytes.size();) {
      const uint64_t tag = Varint(bytes, &at);
      const int field = static_cast<int>(tag >> 3);
      EXPECT_GE(field, last) << "protobuf writes fields in ascending order";
      last = field;
      if ((tag & 7) == 0) {
        numbers_[field].push_back(static_cast<int64_t>(Varint(bytes, &at)));
      } else if ((tag & 7) == 2) {
        const uint64_t size = Varint(bytes, &at);
        if (size > bytes.size() - at) {
          ADD_FAILURE() << "field " << field << " ends beyond its message";
          return;
        }
        strings_[field].push_back(bytes.substr(at, size));
        at += size;
      } else {
        ADD_FAILURE() << "field " << field << " has the wire type " << (tag & 7);
        return;
      }
    }
  }

  bool Has(int field) const { return numbers_.count(field) != 0 || strings_.count(field) != 0; }
  // A number; zero where it was left out.
  int64_t Int(int field) const {
    const auto found = numbers_.find(field);
    if (found == numbers_.end()) return 0;
    EXPECT_EQ(found->second.size(), 1u) << "field " << field;
    return found->second[0];
  }
  // The elements of a string, bytes or message field.
  std::vector<std::string> All(int field) const {
    const auto found = strings_.find(field);
    return found == strings_.end() ? std::vector<std::string>() : found->second;
  }
  std::string Bytes(int field) const {
    const std::vector<std::string> all = All(field);
    EXPECT_LE(all.size(), 1u) << "field " << field;
    return all.empty() ? "" : all[0];
  }
  WireReader Sub(int field) const { return WireReader(Bytes(field)); }
  std::vector<WireReader> Subs(int field) const {
    const std::vector<std::string> all = All(field);
    return std::vector<WireReader>(all.begin(), all.end());
  }
  std::vector<int64_t> Packed(int field) const {
    const std::string body = Bytes(field);
    std::vector<int64_t> values;
    for (size_t at = 0; at < body.size();) {
      values.push_back(static_cast<int64_t>(Varint(body, &at)));
    }
    return values;
  }

 private:
  static uint64_t Varint(const std::string& bytes, size_t* at) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (*at >= bytes.size()) break;
      const uint8_t byte = static_cast<uint8_t>(bytes[(*at)++]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    ADD_FAILURE() << "a varint does not end";
    *at = bytes.size();
    return value;
  }

  std::map<int, std::vector<int64_t>> numbers_;
  std::map<int, std::vector<std::string>> strings_;
};

// An HloModuleProto as tests look at it. Field numbers: lowering/hlo/hlo.proto.
struct ReadInstruction {
  std::string name, opcode;
  int64_t id, channel;
  std::vector<int64_t> operands, called, dims;
  bool global_ids, pinned_layout;
  WireReader proto;

  explicit ReadInstruction(const WireReader& message)
      : name(message.Bytes(1)),
        opcode(message.Bytes(2)),
        id(message.Int(35)),
        channel(message.Int(26)),
        operands(message.Packed(36)),
        called(message.Packed(38)),
        dims(message.Sub(3).Packed(3)),
        global_ids(message.Int(71) != 0),
        pinned_layout(message.Int(56) != 0),
        proto(message) {}
};

struct ReadComputation {
  std::string name;
  int64_t id, root_id;
  std::vector<ReadInstruction> instructions;
  std::string program_shape;

  explicit ReadComputation(const WireReader& message)
      : name(message.Bytes(1)),
        id(message.Int(5)),
        root_id(message.Int(6)),
        program_shape(message.Bytes(4)) {
    for (const WireReader& sub : message.Subs(2)) instructions.emplace_back(sub);
  }
};

struct ReadModule {
  std::string name, entry_name, entry_shape;
  int64_t entry_id;
  std::vector<ReadComputation> computations;

  explicit ReadModule(const std::string& bytes) : ReadModule(WireReader(bytes)) {}
  explicit ReadModule(const WireReader& message)
      : name(message.Bytes(1)),
        entry_name(message.Bytes(2)),
        entry_shape(message.Bytes(4)),
        entry_id(message.Int(6)) {
    for (const WireReader& sub : message.Subs(3)) computations.emplace_back(sub);
  }

  // All instructions, in the order of the computations.
  std::vector<ReadInstruction> Instructions() const {
    std::vector<ReadInstruction> all;
    for (const ReadComputation& computation : computations) {
      all.insert(all.end(), computation.instructions.begin(), computation.instructions.end());
    }
    return all;
  }
};

}  // namespace xla_cc
