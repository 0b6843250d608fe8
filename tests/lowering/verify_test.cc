// The numbered constraints of docs/spec.md: what is refused, and how the message says it.
//
// One row for each place in lowering/ that refuses (those of groups and of targets have tables of
// their own); tests/python/test_wire.py counts them by label.
#include <cmath>
#include <limits>

#include "tests/lowering/testing.h"

namespace xla_cc {
namespace {

using hlo::ElementType;
using hlo::Shape;

struct Refused {
  const char* label;
  Collective collective;
  std::vector<Shape> operands;
  Target target;
  std::string given;     // "dim = 2", or as much of a number as every way of writing it has
  std::string required;  // a part of what the message requires
  std::string remedy;    // the whole of it
};

void PrintTo(const Refused& refused, std::ostream* out) {
  *out << refused.label << " " << ToString(refused.collective);
}

class Refusals : public testing::TestWithParam<Refused> {};

TEST_P(Refusals, SayWhatIsWrongAndWhatToDo) {
  const Refused& refused = GetParam();
  const std::string message =
      MessageOf(Lower(refused.collective, refused.operands, refused.target));
  const std::string begin = Name(OpFor(refused.collective)) + ": " + refused.given;
  const std::string end = std::string(" (") + refused.label + "). " + refused.remedy + ".";
  ASSERT_GT(message.size(), begin.size() + end.size()) << message;
  EXPECT_EQ(message.substr(0, begin.size()), begin);
  EXPECT_EQ(message.substr(message.size() - end.size()), end);
  const size_t required = message.find(", but it must be ", begin.size());
  ASSERT_NE(required, std::string::npos) << message;
  EXPECT_NE(message.find(refused.required, required), std::string::npos) << message;
  // The shapes alone are refused alike; what a device can do is none of their business.
  if (refused.label != std::string("C1")) {
    EXPECT_EQ(MessageOf(ResultShapes(refused.collective, refused.operands, refused.target)),
              message);
  }
}

std::string CaseName(const testing::TestParamInfo<Refused>& info) {
  return Name(OpFor(info.param.collective)) + "_" + info.param.label + "_" +
         std::to_string(info.index);
}

Shape Of(ElementType type, const Dims& dims = {8, 8}) { return {type, dims}; }
const std::vector<Shape> kSquare = {F32({8, 8})};

AllReduce Reduce(ReduceKind kind, double scale = 1, double factor = 1) {
  return {{kind, scale, factor}, {}};
}

constexpr char kFewer[] = "Pass fewer elements at a time";
constexpr char kPassTensor[] = "Pass a tensor, or skip the call";
constexpr char kAxis[] = "Name an axis that it has";
constexpr char kScalar[] = "Reshape the scalar to one element";
constexpr char kOneAxis[] = "Give it as a positive number, or call once per rank of tensor";

INSTANTIATE_TEST_SUITE_P(
    Operands, Refusals,
    testing::Values(
        Refused{"O1", AllGather{}, {}, Tpu8(), "operands = []", "at least one tensor", kPassTensor},
        Refused{"O1", AllReduce{}, {}, Tpu8(), "operands = []", "at least one tensor", kPassTensor},
        Refused{"O1", ReduceScatter{}, {}, Tpu8(), "operands = []", "at least one", kPassTensor},
        Refused{"O1", CollectivePermute{}, {}, Tpu8(), "operands = []", "at least", kPassTensor},
        Refused{"O1", AllToAll{}, {}, Tpu8(), "operands = []", "at least one", kPassTensor},
        Refused{"O1", CollectiveBroadcast{}, {}, Tpu8(), "operands = []", "at least", kPassTensor},
        Refused{"O1", Send{1, {{0, 1}}}, {}, Tpu8(), "operands = []", "at least", kPassTensor},
        Refused{"O1", Recv{1, {{0, 1}}}, {}, Tpu8(), "operands = []", "at least", kPassTensor},
        Refused{"O2", AllGather{2, {}}, kSquare, Tpu8(), "dim = 2",
                "an axis of operand 0, f32[8,8]: -2 to 1", kAxis},
        Refused{"O2", AllGather{-3, {}}, kSquare, Tpu8(), "dim = -3",
                "an axis of operand 0, f32[8,8]: -2 to 1", kAxis},
        Refused{"O2", AllGather{INT64_MIN, {}}, kSquare, Tpu8(), "dim = -9223372036854775808",
                "an axis of operand 0", kAxis},
        // A scalar is gathered as a vector of one element.
        Refused{"O2",
                AllGather{1, {}},
                {F32({})},
                Tpu8(),
                "dim = 1",
                "an axis of operand 0, f32[]: -1 to 0",
                kAxis},
        Refused{"O2",
                AllGather{1, {}},
                {F32({8, 8}), F32({8})},
                Tpu8(),
                "dim = 1",
                "an axis of operand 1, f32[8]: -1 to 0",
                kAxis},
        Refused{"O2", ReduceScatter{{}, 2, {}, {}}, kSquare, Tpu8(), "dim = 2", "-2 to 1", kAxis},
        Refused{"O2",
                ReduceScatter{{}, 0, {}, {}},
                {F32({})},
                Tpu8(),
                "dim = 0",
                "an axis of operand 0, f32[], which has none",
                kScalar},
        Refused{"O2", AllToAll{2, 0, {}, {}}, kSquare, Tpu8(), "split_dim = 2", "-2 to 1", kAxis},
        Refused{"O2", AllToAll{0, -3, {}, {}}, kSquare, Tpu8(), "concat_dim = -3", "-2 to 1",
                kAxis},
        Refused{"O2", AllToAll{}, {F32({})}, Tpu8(), "split_dim = 0", "which has none", kScalar},
        Refused{"O2",
                AllGather{-1, {}},
                {F32({8, 8}), F32({8})},
                Tpu8(),
                "dim = -1",
                "one axis for all operands",
                kOneAxis},
        Refused{"O3",
                ReduceScatter{{}, 1, {}, {}},
                {F32({8, 12})},
                Tpu8(),
                "dim = 1",
                "divisible by 8, the ranks of a group, and operand 0, f32[8,12], has 12 there",
                "Pad it to 16, the next size that divides"},
        Refused{"O3",
                AllToAll{1, 0, {}, {}},
                {F32({8, 8}), F32({8, 1})},
                Tpu8(),
                "split_dim = 1",
                "operand 1, f32[8,1], has 1 there",
                "Pad it to 8, the next size that divides"},
        Refused{"O4",
                AllGather{},
                {F32({int64_t{1} << 56})},
                Tpu8(),
                "operands = f32[72057594037927936]",
                "fewer than 2^56 bytes on 8 ranks",
                kFewer},
        // The other sizes of what has no elements are multiplied too.
        Refused{"O4",
                AllToAll{0, 1, {}, {}},
                {F32({0, int64_t{1} << 61})},
                Tpu8(),
                "operands = f32[0,2305843009213693952]",
                "fewer than 2^56 bytes",
                kFewer},
        Refused{"O4",
                AllReduce{},
                {F32({8}), F32({4, -2})},
                Tpu8(),
                "operands = f32[4,-2]",
                "of sizes of 0 or more",
                kFewer}),
    CaseName);

constexpr char kCount[] = "Leave it out, or give groups of that size";
const Groups kUnequal = UnequalGroups(8);

INSTANTIATE_TEST_SUITE_P(
    Groups, Refusals,
    testing::Values(
        // What G1 means is groups_test.cc's matter; here: that every op with groups asks for it.
        Refused{"G1", AllReduce{{}, Groups(Lists{{0, 8}})}, kSquare, Tpu8(), "groups = [[0,8]]",
                "and 8 is none", "Name ranks of this world of 8"},
        Refused{"G1", ReduceScatter{{}, 0, {}, Groups(Lists{{0, 0}})}, kSquare, Tpu8(),
                "groups = [[0,0]]", "rank 0 is named twice", "Name no rank twice"},
        Refused{"G1", AllToAll{0, 0, {}, Groups(Lists{{}})}, kSquare, Tpu8(), "groups = [[]]",
                "lists of at least one rank", "Leave the empty group out"},
        Refused{"G1", CollectiveBroadcast{0, Groups(Lists{{-1}})}, kSquare, Tpu8(),
                "groups = [[-1]]", "and -1 is none", "Name ranks of this world of 8"},
        Refused{"G3", ReduceScatter{{}, 0, 4, {}}, kSquare, Tpu8(), "shard_count = 4",
                "the number of ranks in a group, 8", kCount},
        Refused{"G3", AllToAll{0, 0, 8, Groups(Lists{{0, 1, 2, 3}, {4, 5, 6, 7}})}, kSquare, Tpu8(),
                "split_count = 8", "the number of ranks in a group, 4", kCount},
        Refused{"G3", AllToAll{0, 0, 0, {}}, kSquare, Tpu8(), "split_count = 0", "8", kCount}),
    CaseName);

constexpr char kInteger[] = "Use sum, product, min or max, or view the tensor as an integer type";
constexpr char kNumbers[] = "Convert the tensor to a number type first";
constexpr char kComplexOrder[] = "Reduce torch.view_as_real(tensor), or its absolute values";
constexpr char kFloating[] = "Scale a floating point tensor, or divide the result";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

INSTANTIATE_TEST_SUITE_P(
    Reductions, Refusals,
    testing::Values(Refused{"R1", Reduce(ReduceKind::kAnd), kSquare, Gpu8(), "reduce_type = and",
                            "a kind that f32[8,8] has", kInteger},
                    Refused{"R1",
                            Reduce(ReduceKind::kXor),
                            {Of(ElementType::kC64)},
                            Gpu8(),
                            "reduce_type = xor",
                            "work on integers and bool",
                            kInteger},
                    Refused{"R1",
                            ReduceScatter{{ReduceKind::kOr}, 0, {}, {}},
                            {Of(ElementType::kF8E5M2)},
                            Gpu8(),
                            "reduce_type = or",
                            "a kind that f8e5m2[8,8] has",
                            kInteger},
                    // Any operand of a list.
                    Refused{"R1",
                            Reduce(ReduceKind::kAnd),
                            {S32({8, 8}), F32({8, 8})},
                            Gpu8(),
                            "reduce_type = and",
                            "a kind that f32[8,8] has",
                            kInteger},
                    Refused{"R2",
                            Reduce(ReduceKind::kMin),
                            {Of(ElementType::kC64)},
                            Gpu8(),
                            "reduce_type = min",
                            "complex numbers have no order",
                            kComplexOrder},
                    Refused{"R2",
                            Reduce(ReduceKind::kMax),
                            {Of(ElementType::kC128)},
                            Gpu8(),
                            "reduce_type = max",
                            "complex numbers have no order",
                            kComplexOrder},
                    Refused{"R3",
                            Reduce(ReduceKind::kAverage),
                            {Of(ElementType::kPred)},
                            Gpu8(),
                            "reduce_type = average",
                            "truth values have no average",
                            kNumbers},
                    Refused{"R4", Reduce(ReduceKind::kSum, kInfinity), kSquare, Gpu8(),
                            "scale = inf", "a finite number", kFloating},
                    Refused{"R4", Reduce(ReduceKind::kSum, std::nan("")), kSquare, Gpu8(),
                            "scale = nan", "a finite number", kFloating},
                    Refused{"R4", Reduce(ReduceKind::kPremultipliedSum, 1, -kInfinity), kSquare,
                            Gpu8(), "factor = -inf", "a finite number", kFloating},
                    Refused{"R4",
                            Reduce(ReduceKind::kSum, 2147483648.0),
                            {S32({8})},
                            Gpu8(),
                            "scale = 2",
                            "a whole one of 32 bits for s32[8]",
                            kFloating},
                    Refused{"R4",
                            Reduce(ReduceKind::kSum, 0.5),
                            {S32({8})},
                            Gpu8(),
                            "scale = 0.5",
                            "a whole one of 32 bits for s32[8]",
                            kFloating},
                    Refused{"R4",
                            Reduce(ReduceKind::kSum, 1e-9),
                            {S32({8})},
                            Gpu8(),
                            "scale = 1e-09",
                            "a whole one of 32 bits for s32[8]",
                            kFloating},
                    Refused{"R4",
                            Reduce(ReduceKind::kSum, 2),
                            {Of(ElementType::kPred)},
                            Gpu8(),
                            "scale = 2",
                            "1 for truth values",
                            kNumbers},
                    Refused{"R4", Reduce(ReduceKind::kSum, 1, 3), kSquare, Gpu8(), "factor = 3",
                            "1 unless reduce_type is premultiplied_sum",
                            "Use scale for the result"}),
    CaseName);

constexpr char kPartners[] =
    "Use collective_broadcast or all_gather where one rank has several partners";
constexpr char kWho[] = "Name who sends to whom: Channel(pairs=[(0, 1)])";
constexpr char kNumberChannels[] = "Number channels from 1";
constexpr char kWorld8[] = "Name ranks of this world of 8";

INSTANTIATE_TEST_SUITE_P(
    PairsAndRoots, Refusals,
    testing::Values(
        Refused{"P1", CollectivePermute{{{0, 1}, {1, 8}}}, kSquare, Tpu8(), "pairs = (1, 8)",
                "a pair of ranks of the world, 0 to 7", kWorld8},
        Refused{"P1", CollectivePermute{{{-1, 0}}}, kSquare, Tpu8(), "pairs = (-1, 0)",
                "a pair of ranks of the world, 0 to 7", kWorld8},
        Refused{"P1", CollectivePermute{{{0, 1}, {0, 2}}}, kSquare, Tpu8(), "pairs = (0, 2)",
                "the only pair with this source", kPartners},
        Refused{"P1", CollectivePermute{{{0, 2}, {1, 2}}}, kSquare, Tpu8(), "pairs = (1, 2)",
                "the only pair with this target", kPartners},
        Refused{"P1", Send{1, {{0, 8}}}, kSquare, Gpu8(), "pairs = (0, 8)", "0 to 7", kWorld8},
        Refused{"P1", Recv{1, {{0, 1}, {0, 1}}}, kSquare, Gpu8(), "pairs = (0, 1)",
                "the only pair with this source", kPartners},
        Refused{"B1", CollectiveBroadcast{8, {}}, kSquare, Gpu8(), "root = 8",
                "a rank of the world, 0 to 7", "Name the rank that has the values"},
        Refused{"B1", CollectiveBroadcast{-1, {}}, kSquare, Gpu8(), "root = -1",
                "a rank of the world, 0 to 7", "Name the rank that has the values"},
        Refused{"B2", CollectiveBroadcast{1, kUnequal}, kSquare, Gpu8(), "root = 1",
                "it is number 1 of its own, and [7] is shorter",
                "Put the roots first in their groups"},
        Refused{"B2", CollectiveBroadcast{3, Groups(Lists{{0, 1}})}, kSquare, Gpu8(), "root = 3",
                "in a group, and [[0,1]] leaves it out", "Name a rank of a group"},
        Refused{"S1", Send{0, {{0, 1}}}, kSquare, Gpu8(), "channel = 0", "1 to 2147483647",
                kNumberChannels},
        Refused{"S1", Recv{int64_t{1} << 31, {{0, 1}}}, kSquare, Gpu8(), "channel = 2147483648",
                "1 to 2147483647", kNumberChannels},
        Refused{"S1", Send{1, {}}, kSquare, Gpu8(), "pairs = []",
                "at least one (source, target) pair", kWho},
        Refused{"S1", Recv{1, {}}, kSquare, Gpu8(), "pairs = []",
                "at least one (source, target) pair", kWho}),
    CaseName);

}  // namespace
}  // namespace xla_cc
