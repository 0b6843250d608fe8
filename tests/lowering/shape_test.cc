// Element types and shapes.
#include "lowering/hlo/shape.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <utility>

#include "tests/lowering/testing.h"
#include "tests/lowering/wire_reader.h"

namespace xla_cc::hlo {
namespace {

// XLA's own numbers (PrimitiveType of xla_data.proto), written down here a second time on purpose.
struct Type {
  int number;
  const char* name;
  int bits;
  TypeClass type_class;
};

const Type kTypes[] = {
    {1, "pred", 8, TypeClass::kBool},        {2, "s8", 8, TypeClass::kSigned},
    {3, "s16", 16, TypeClass::kSigned},      {4, "s32", 32, TypeClass::kSigned},
    {5, "s64", 64, TypeClass::kSigned},      {6, "u8", 8, TypeClass::kUnsigned},
    {7, "u16", 16, TypeClass::kUnsigned},    {8, "u32", 32, TypeClass::kUnsigned},
    {9, "u64", 64, TypeClass::kUnsigned},    {10, "f16", 16, TypeClass::kFloat},
    {11, "f32", 32, TypeClass::kFloat},      {12, "f64", 64, TypeClass::kFloat},
    {15, "c64", 64, TypeClass::kComplex},    {16, "bf16", 16, TypeClass::kFloat},
    {18, "c128", 128, TypeClass::kComplex},  {19, "f8e5m2", 8, TypeClass::kFloat8},
    {20, "f8e4m3fn", 8, TypeClass::kFloat8},
};

class ElementTypes : public testing::TestWithParam<Type> {};

TEST_P(ElementTypes, Facts) {
  const Type& expected = GetParam();
  const auto type = ElementTypeFromNumber(expected.number);
  ASSERT_TRUE(type.has_value());
  EXPECT_EQ(static_cast<int>(*type), expected.number);
  EXPECT_EQ(Name(*type), expected.name);
  EXPECT_EQ(Bits(*type), expected.bits);
  EXPECT_EQ(Class(*type), expected.type_class);
  EXPECT_EQ(IsIntegral(*type), expected.type_class == TypeClass::kSigned ||
                                   expected.type_class == TypeClass::kUnsigned);
  EXPECT_EQ(IsComplex(*type), expected.type_class == TypeClass::kComplex);
  EXPECT_EQ(IsFloat8(*type), expected.type_class == TypeClass::kFloat8);
  const Shape shape{*type, {2, 3}};
  EXPECT_EQ(shape.Bytes(), 6 * expected.bits / 8);
  EXPECT_EQ(shape.ToString(), std::string(expected.name) + "[2,3]");
  EXPECT_EQ(WireReader(shape.ToProto().Serialize()).Int(2), expected.number);
}

INSTANTIATE_TEST_SUITE_P(All, ElementTypes, testing::ValuesIn(kTypes),
                         [](const auto& info) { return info.param.name; });

TEST(ElementTypes, ThereAreNoOthers) {
  EXPECT_EQ(kAllTypes.size(), std::size(kTypes));
  std::set<int64_t> known;
  for (const Type& type : kTypes) known.insert(type.number);
  for (int64_t number = -2; number < 100; ++number) {
    EXPECT_EQ(ElementTypeFromNumber(number).has_value(), known.count(number) != 0) << number;
  }
}

TEST(Shape, Elements) {
  EXPECT_EQ(F32({}).Elements(), 1);
  EXPECT_EQ(F32({4, 8}).Elements(), 32);
  EXPECT_EQ(F32({4, 0, 8}).Elements(), 0);
  EXPECT_EQ(F32({int64_t{1} << 20, int64_t{1} << 20}).Elements(), int64_t{1} << 40);
}

TEST(Shape, Text) {
  EXPECT_EQ(F32({}).ToString(), "f32[]");
  EXPECT_EQ(F32({0}).ToString(), "f32[0]");
  EXPECT_EQ(S32({1, 2, 3}).ToString(), "s32[1,2,3]");
}

// Numbers in texts read back to the same bits.
TEST(Numbers, Text) {
  const std::pair<double, const char*> texts[] = {{0, "0"},
                                                  {-0.0, "-0"},
                                                  {8, "8"},
                                                  {0.1, "0.1"},
                                                  {-2.5, "-2.5"},
                                                  {1e300, "1e+300"},
                                                  {1e-09, "1e-09"},
                                                  {1.0 / 3, "0.33333333333333331"},
                                                  {2147483647, "2147483647"},
                                                  {5e-324, "4.94066e-324"}};
  for (const auto& [value, text] : texts) {
    EXPECT_EQ(ToString(value), text);
    EXPECT_EQ(std::strtod(ToString(value).c_str(), nullptr), value);
  }
}

TEST(Shape, Equality) {
  EXPECT_EQ(F32({4}), F32({4}));
  EXPECT_NE(F32({4}), F32({4, 1}));
  EXPECT_NE(F32({4}), S32({4}));
}

// Row major: the last dimension is the most minor. A scalar's layout is present, and empty.
TEST(Shape, Proto) {
  const WireReader cube(F32({4, 5, 6}).ToProto().Serialize());
  EXPECT_EQ(cube.Packed(3), Dims({4, 5, 6}));
  EXPECT_EQ(cube.Sub(5).Packed(1), Dims({2, 1, 0}));
  const WireReader scalar(F32({}).ToProto().Serialize());
  EXPECT_TRUE(scalar.Packed(3).empty());
  EXPECT_TRUE(scalar.Has(5));
  EXPECT_EQ(scalar.Bytes(5), "");
}

}  // namespace
}  // namespace xla_cc::hlo
