// The ops of uneven sizes: what they refuse, the shapes of their results, and which of the ways is
// taken, by the bytes on the wire.
#include <algorithm>

#include "tests/lowering/testing.h"

namespace xla_cc {
namespace {

using hlo::Shape;

struct Refused {
  const char* label;
  Collective collective;
  Shape operand;
  std::string given;
  std::string required;
};

void PrintTo(const Refused& refused, std::ostream* out) {
  *out << refused.label << " " << ToString(refused.collective);
}

class Refusals : public testing::TestWithParam<Refused> {};

TEST_P(Refusals, SayWhatSizesAreWanted) {
  const Refused& refused = GetParam();
  const std::string message =
      MessageOf(Lower(refused.collective, {refused.operand}, TargetOf("tpu", 4)));
  const std::string begin = Name(OpFor(refused.collective)) + ": " + refused.given + ", but";
  EXPECT_EQ(message.substr(0, begin.size()), begin);
  EXPECT_NE(message.find(refused.required), std::string::npos) << message;
  EXPECT_NE(message.find(std::string(" (") + refused.label + "). "), std::string::npos) << message;
  EXPECT_EQ(MessageOf(ResultShapes(refused.collective, {refused.operand}, TargetOf("tpu", 4))),
            message);
}

const Groups kPairs(Lists{{0, 1}, {2, 3}});
const Groups kSome(Lists{{0, 2}});
const SizeMatrix kNothing(4, Sizes(4, 0));

SizeMatrix Only(int64_t from, int64_t to, int64_t rows) {
  SizeMatrix sizes = kNothing;
  sizes[from][to] = rows;
  return sizes;
}

constexpr int64_t kMany = int64_t{1} << 30;

INSTANTIATE_TEST_SUITE_P(
    All, Refusals,
    testing::Values(
        Refused{"V1", UnevenAllGather{{1, 2, 3}, {}}, F32({3}), "sizes = [1,2,3]",
                "one size for each rank of the world, 4, and there are 3"},
        Refused{"V1", UnevenReduceScatter{{}, {}, {}}, F32({3}), "sizes = []", "there are 0"},
        Refused{"V1", UnevenAllGather{{1, 2, -3, 4}, {}}, F32({4}), "sizes = [1,2,-3,4]",
                "numbers of rows, 0 or more, and sizes[2] is -3"},
        Refused{"V1", UnevenAllToAll{Only(1, 2, -7), {}}, F32({4}),
                "sizes = [[0,0,0,0],[0,0,-7,0],[0,0,0,0],[0,0,0,0]]", "and sizes[1][2] is -7"},
        Refused{"V1", UnevenAllToAll{{{1, 2}, {3, 4}}, {}}, F32({4}), "sizes = [[1,2],[3,4]]",
                "a list for each rank of the world of what it sends to each: 4 lists of 4"},
        Refused{"V1", UnevenAllGather{{0, 0, 0, kMany}, {}}, F32({kMany}),
                "sizes = [0,0,0,1073741824]", "at most 2147483647 rows"},
        Refused{"V1", UnevenAllToAll{Only(0, 1, kMany), {}}, F32({kMany}),
                "sizes = " + ToString(Only(0, 1, kMany)), "at most 2147483647 rows"},
        Refused{"V2", UnevenAllGather{{1, 2, 3, 0}, {}}, F32({2, 5}), "operand 0 = f32[2,5]",
                "of 3 rows in dimension 0, the largest of sizes"},
        Refused{"V2", UnevenAllGather{{1, 2, 3, 0}, {}}, F32({}), "operand 0 = f32[]",
                "of 3 rows in dimension 0"},
        Refused{"V2", UnevenReduceScatter{{}, {1, 2, 3, 4}, kPairs}, F32({10}),
                "operand 0 = f32[10]", "of 7 rows in dimension 0, the largest sum of the sizes"},
        Refused{"V2", UnevenAllToAll{Only(0, 1, 5), {}}, F32({4}), "operand 0 = f32[4]",
                "of 5 rows in dimension 0, the largest sum of what a rank sends"},
        Refused{"V3", UnevenAllGather{{1, 2, 3, 0}, kSome}, F32({3}), "sizes = [1,2,3,0]",
                "0 for rank 1, which groups leave out"},
        Refused{"V3", UnevenAllToAll{Only(1, 2, 5), kPairs}, F32({5}),
                "sizes = " + ToString(Only(1, 2, 5)),
                "0 from rank 1 to rank 2, whom groups do not put together"},
        Refused{"V3", UnevenAllToAll{Only(1, 1, 5), kSome}, F32({5}),
                "sizes = " + ToString(Only(1, 1, 5)), "0 from rank 1 to rank 1"},
        Refused{"G1", UnevenAllGather{{1, 2, 3, 4}, Groups(Lists{{0, 4}})}, F32({4}),
                "groups = [[0,4]]", "4 is none"}),
    [](const auto& info) {
      return Name(OpFor(info.param.collective)) + "_" + std::to_string(info.index);
    });

TEST(Uneven, ShapesOfResults) {
  const auto shape = [](const Collective& collective, const Dims& dims) {
    const auto shapes = ResultShapes(collective, {F32(dims)}, TargetOf("tpu", 4));
    EXPECT_TRUE(shapes.ok()) << shapes.status().message();
    return ToString(shapes.value());
  };
  EXPECT_EQ(shape(UnevenAllGather{{1, 0, 3, 4}, {}}, {4, 5}), "f32[8,5]");
  EXPECT_EQ(shape(UnevenAllGather{{1, 0, 3, 4}, kPairs}, {4}), "f32[7]");
  EXPECT_EQ(shape(UnevenAllGather{{1, 0, 3, 0}, kSome}, {3}), "f32[4]");
  EXPECT_EQ(shape(UnevenReduceScatter{{}, {1, 0, 3, 4}, {}}, {8, 5}), "f32[4,5]");
  EXPECT_EQ(shape(UnevenReduceScatter{{}, {1, 0, 3, 4}, kPairs}, {7, 5}), "f32[4,5]");
  EXPECT_EQ(shape(UnevenAllToAll{{{1, 2, 0, 0}, {3, 0, 0, 0}, {0, 0, 9, 0}, {0, 0, 1, 1}}, kPairs},
                  {9, 5}),
            "f32[10,5]");
}

TEST(Uneven, NothingAtAll) {
  for (const Target& target : {Cpu4(), TargetOf("tpu", 4)}) {
    const Lowered lowered = MustLower(UnevenAllGather{Sizes(4, 0), {}}, {F32({0, 2})}, target);
    EXPECT_TRUE(lowered.bytes.empty());
    EXPECT_EQ(ToString(lowered.results), "f32[0,2]");
    EXPECT_TRUE(MustLower(UnevenAllToAll{kNothing, {}}, {F32({0, 2})}, target).bytes.empty());
  }
}

TEST(Uneven, RanksAgreeOnSizesAndOnAllGroups) {
  const auto identity = [](const Sizes& sizes, const Groups& groups) {
    return MustLower(UnevenAllGather{sizes, groups}, {F32({4})}, Cpu4()).identity;
  };
  EXPECT_EQ(identity({1, 2, 3, 4}, kPairs),
            "uneven_all_gather(sizes=[1,2,3,4], groups=[[0,1],[2,3]]) f32[4]");
  EXPECT_EQ(identity({1, 2, 3, 4}, Groups(Lists{{2, 3}, {0, 1}})), identity({1, 2, 3, 4}, kPairs));
  EXPECT_NE(identity({1, 2, 4, 3}, kPairs), identity({1, 2, 3, 4}, kPairs));
  // What is too long to be shown still counts.
  const auto large = [](int64_t last) {
    Sizes sizes(200, 3);
    sizes.back() = last;
    return MustLower(UnevenAllGather{sizes, {}}, {F32({3})}, TargetOf("cpu", 200)).identity;
  };
  EXPECT_NE(large(1), large(2));
  EXPECT_LT(large(1).size(), 200u);
}

// Which way is taken: the one with the least bytes on the wire.
struct Way {
  std::string name;
  Collective collective;
  int64_t rows;  // of 1024 numbers each
  std::string target;
  std::string opcodes;
  int64_t wire_rows;
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class Ways : public testing::TestWithParam<Way> {};

TEST_P(Ways, TakeTheLeastBytes) {
  const Way& way = GetParam();
  const Lowered lowered = MustLower(way.collective, {F32({way.rows, 1024})}, TargetOf(way.target));
  EXPECT_EQ(Join(lowered.opcodes), way.opcodes);
  EXPECT_EQ(lowered.cost.wire_bytes, way.wire_rows * 4096) << lowered.text;
}

Sizes Skewed(int64_t rows) {
  Sizes sizes(8, 1);
  sizes[3] = rows;
  return sizes;
}

Sizes Nearly(int64_t rows) {
  Sizes sizes(8, rows);
  sizes[3] -= 1;
  return sizes;
}

SizeMatrix AllOf(int64_t world_size, int64_t rows) {
  return SizeMatrix(world_size, Sizes(world_size, rows));
}

SizeMatrix Spike(int64_t world_size, int64_t rows) {
  SizeMatrix sizes = AllOf(world_size, 1);
  sizes[2][5] = rows;
  return sizes;
}

std::string Times(int count, const std::string& opcode) {
  return Join(std::vector<std::string>(count, opcode));
}

const Groups kHalves(Lists{{0, 1, 2, 3}, {4, 5, 6, 7}});
constexpr char kTpu[] = "tpu:v5e:2x4";
constexpr char kTpu16[] = "tpu:v5e:4x4";
constexpr char kGpu[] = "gpu:h100x8";
constexpr char kCpu[] = "cpu:8";

INSTANTIATE_TEST_SUITE_P(
    Ops, Ways,
    testing::Values(
        Way{"GatherEven", UnevenAllGather{Sizes(8, 500), {}}, 500, kTpu, "all-gather", 7 * 500},
        Way{"GatherBalanced", UnevenAllGather{Nearly(500), {}}, 500, kTpu, "all-gather", 7 * 500},
        Way{"GatherSkewed", UnevenAllGather{Skewed(993), {}}, 993, kTpu, "all-reduce", 1750},
        Way{"GatherSkewedCpu", UnevenAllGather{Skewed(993), {}}, 993, kCpu, "all-reduce", 1750},
        Way{"GatherHalves", UnevenAllGather{Nearly(500), kHalves}, 500, kTpu, "all-gather",
            3 * 500},
        Way{"ScatterBalanced", UnevenReduceScatter{{}, Nearly(500), {}}, 3999, kTpu,
            "reduce-scatter collective-permute", 7 * 504 + 28},  // filled up to whole tiles
        Way{"ScatterSkewed", UnevenReduceScatter{{}, Skewed(993), {}}, 1000, kTpu, "all-reduce",
            1750},
        Way{"ScatterSkewedCpu", UnevenReduceScatter{{}, Skewed(993), {}}, 1000, kCpu, "all-reduce",
            1750},
        Way{"ExchangeBalanced", UnevenAllToAll{AllOf(16, 300), {}}, 4800, kTpu16, "all-to-all",
            15 * 300},
        // One of fifteen rounds is long.
        Way{"ExchangeSpike", UnevenAllToAll{Spike(16, 9000), {}}, 9015, kTpu16,
            Times(15, "collective-permute"), 9014},
        Way{"ExchangeSpikeCpu", UnevenAllToAll{Spike(8, 9000), {}}, 9007, kCpu,
            Times(7, "all-gather"), 9006},
        Way{"ExchangeRagged", UnevenAllToAll{Spike(8, 2000), {}}, 2007, kGpu, "ragged-all-to-all",
            2006},
        Way{"ExchangeEven", UnevenAllToAll{AllOf(8, 300), {}}, 2400, kGpu, "all-to-all", 7 * 300},
        // Over the world, in which nothing is sent between groups.
        Way{"ExchangeInUnequalGroups",
            UnevenAllToAll{ExchangeOf(UnequalGroups(8), 8, 700), UnequalGroups(8)}, 700, kTpu,
            "ragged-all-to-all", 606},
        Way{"ExchangeInSomeGroups",
            UnevenAllToAll{ExchangeOf(PartialGroups(8), 8, 700), PartialGroups(8)}, 700, kGpu,
            "ragged-all-to-all", 351}),
    [](const auto& info) { return info.param.name; });

// Never more bytes than either simple way: filling up, or a sum of everything.
TEST(Uneven, NeverWorseThanTheSimpleWays) {
  const Target target = Tpu8();
  for (int64_t large = 1; large < 4000; large *= 2) {
    for (int64_t others : {0, 1, 10, 100, 1000}) {
      Sizes sizes(8, others);
      sizes[large % 8] = large;
      const int64_t most = std::max(large, others);
      const int64_t all = large + 7 * others;
      const int64_t bytes = int64_t{4} << 20;  // of a row: more than what an instruction costs
      const Lowered lowered = MustLower(UnevenAllGather{sizes, {}}, {F32({most, 1 << 20})}, target);
      EXPECT_LE(lowered.cost.wire_bytes, std::min(7 * most, 7 * all / 4) * bytes + bytes);
    }
  }
}

}  // namespace
}  // namespace xla_cc
