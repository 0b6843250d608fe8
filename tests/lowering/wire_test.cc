// The bytes of hlo/wire.h against protobuf's, computed by hand from its encoding guide.
#include "lowering/hlo/wire.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "tests/lowering/wire_reader.h"

namespace xla_cc::hlo {
namespace {

std::string Hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes) {
    if (!out.empty()) out += ' ';
    out += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

struct Case {
  const char* name;
  WireMessage message;
  const char* hex;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Wire : public testing::TestWithParam<Case> {};

TEST_P(Wire, Bytes) { EXPECT_EQ(Hex(GetParam().message.Serialize()), GetParam().hex); }

INSTANTIATE_TEST_SUITE_P(
    WireMessage, Wire,
    testing::Values(
        Case{"Nothing", WireMessage(), ""},
        // A number: tag = field * 8, then seven bits a byte, the lowest first.
        Case{"One", WireMessage().Int(1, 1), "08 01"},  //
        Case{"LargestOfOneByte", WireMessage().Int(1, 127), "08 7f"},
        Case{"SmallestOfTwoBytes", WireMessage().Int(1, 128), "08 80 01"},
        Case{"TwoBytes", WireMessage().Int(1, 150), "08 96 01"},
        Case{"Int32Max", WireMessage().Int(1, INT32_MAX), "08 ff ff ff ff 07"},
        Case{"Int64Max", WireMessage().Int(1, INT64_MAX), "08 ff ff ff ff ff ff ff ff 7f"},
        Case{"ZeroIsLeftOut", WireMessage().Int(1, 0), ""},
        Case{"LastNumberCounts", WireMessage().Int(1, 5).Int(1, 6), "08 06"},
        // Negative numbers are written as 64 bits, whatever the field's width.
        Case{"MinusOne", WireMessage().Int(1, -1), "08 ff ff ff ff ff ff ff ff ff 01"},
        Case{"MinusTwo", WireMessage().Int(1, -2), "08 fe ff ff ff ff ff ff ff ff 01"},
        Case{"Int64Min", WireMessage().Int(1, INT64_MIN), "08 80 80 80 80 80 80 80 80 80 01"},
        // Tags of one byte end at field 15.
        Case{"Field15", WireMessage().Int(15, 1), "78 01"},
        Case{"Field16", WireMessage().Int(16, 1), "80 01 01"},
        Case{"Field87", WireMessage().Int(87, 1), "b8 05 01"},
        Case{"Text", WireMessage().Bytes(2, "testing"), "12 07 74 65 73 74 69 6e 67"},
        Case{"TextWithZero", WireMessage().Bytes(2, std::string("a\0b", 3)), "12 03 61 00 62"},
        Case{"EmptyText", WireMessage().Bytes(2, ""), "12 00"},
        Case{"RepeatedText", WireMessage().Bytes(2, "b").Bytes(2, "a"), "12 01 62 12 01 61"},
        Case{"Nested", WireMessage().Sub(3, WireMessage().Int(1, 150)), "1a 03 08 96 01"},
        Case{"NestedTwice", WireMessage().Sub(3, WireMessage().Sub(3, WireMessage().Int(1, 1))),
             "1a 04 1a 02 08 01"},
        Case{"EmptyMessageIsPresent", WireMessage().Sub(3, WireMessage()), "1a 00"},
        Case{"RepeatedMessage", WireMessage().Sub(3, WireMessage().Int(1, 1)).Sub(3, WireMessage()),
             "1a 02 08 01 1a 00"},
        Case{"Packed", WireMessage().Packed(4, {3, 270, 86942}), "22 06 03 8e 02 9e a7 05"},
        Case{"PackedZeros", WireMessage().Packed(4, {0, 0}), "22 02 00 00"},
        Case{"PackedNegative", WireMessage().Packed(4, {-1, 1}),
             "22 0b ff ff ff ff ff ff ff ff ff 01 01"},
        Case{"PackedNothing", WireMessage().Packed(4, {}), ""},
        Case{"PackedFloats", WireMessage().PackedRaw<float>(8, {1.0f, -2.0f}),
             "42 08 00 00 80 3f 00 00 00 c0"},
        Case{"PackedDoubles", WireMessage().PackedRaw<double>(9, {1.0}),
             "4a 08 00 00 00 00 00 00 f0 3f"},
        Case{"PackedFloatZero", WireMessage().PackedRaw<float>(8, {0.0f}), "42 04 00 00 00 00"},
        Case{"PackedNoFloats", WireMessage().PackedRaw<float>(8, {}), ""},
        // Ascending numbers, whatever the order of the calls.
        Case{"FieldOrder",
             WireMessage().Int(35, 2).Bytes(2, "x").Sub(3, WireMessage()).Bytes(1, "y"),
             "0a 01 79 12 01 78 1a 00 98 02 02"},
        Case{"MergeSorts", WireMessage().Int(9, 1).Merge(WireMessage().Int(2, 1)), "10 01 48 01"},
        Case{"MergeAppends", WireMessage().Bytes(2, "a").Merge(WireMessage().Bytes(2, "b")),
             "12 01 61 12 01 62"}),
    [](const auto& info) { return info.param.name; });

// The length of a field is a varint too.
TEST(Wire, LongFields) {
  const std::string bytes = WireMessage().Bytes(2, std::string(300, 'x')).Serialize();
  EXPECT_EQ(Hex(bytes.substr(0, 4)), "12 ac 02 78");
  EXPECT_EQ(bytes.size(), 303u);
}

TEST(Wire, RandomNumbersReadBack) {
  std::mt19937_64 random(20240);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> values(random() % 5);
    for (int64_t& value : values) value = static_cast<int64_t>(random()) >> (random() % 64);
    const int field = 1 + static_cast<int>(random() % 100);
    const int64_t single = static_cast<int64_t>(random()) >> (random() % 64);
    const WireReader read(WireMessage().Packed(field, values).Int(field + 1, single).Serialize());
    EXPECT_EQ(read.Packed(field), values);
    EXPECT_EQ(read.Int(field + 1), single);
  }
}

}  // namespace
}  // namespace xla_cc::hlo
