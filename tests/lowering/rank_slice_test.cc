#include "lowering/rank_slice.h"

#include <gtest/gtest.h>

namespace xla_cc {
namespace {

using hlo::ElementType;
using hlo::Shape;

const Shape kWhole{ElementType::kF32, {2, 7}};

Target OfThree() { return ParseTarget("tpu", 3).value(); }

TEST(RankSlice, WhatIsRefusedSaysWhy) {
  struct Row {
    const char* label;
    RankSlice slice;
    Shape whole;
  };
  const Row rows[] = {
      {"X1", {2, 1, {0, 0, 0}}, kWhole},
      {"X1", {-1, 1, {0, 0, 0}}, kWhole},
      {"X2", {1, 8, {0, 0, 0}}, kWhole},
      {"X2", {1, -1, {0, 0, 0}}, kWhole},
      {"X3", {1, 3, {0, 0}}, kWhole},
      {"X4", {1, 3, {0, 5, 0}}, kWhole},
      {"X4", {1, 3, {0, -1, 0}}, kWhole},
      {"X5", {0, 3, {0, 0, 0}}, {ElementType::kF32, {int64_t{1} << 31}}},
  };
  for (const Row& row : rows) {
    for (const auto& lowered : {LowerRankSlice(row.slice, row.whole, OfThree()),
                                LowerRankSliceGradient(row.slice, row.whole, OfThree())}) {
      ASSERT_FALSE(lowered.ok()) << row.label;
      const std::string label = std::string("(") + row.label + ")";
      EXPECT_NE(lowered.status().message().find(label), std::string::npos)
          << lowered.status().message();
    }
  }
}

TEST(RankSlice, OneProgramForAllRanks) {
  const RankSlice slice{1, 3, {4, 0, 2}};
  const auto lowered = LowerRankSlice(slice, kWhole, OfThree());
  ASSERT_TRUE(lowered.ok());
  EXPECT_EQ(lowered.value(), LowerRankSlice(slice, kWhole, OfThree()).value());
  EXPECT_TRUE(LowerRankSliceGradient(slice, kWhole, OfThree()).ok());
}

}  // namespace
}  // namespace xla_cc
