// Lower(): the rule that is taken, what it becomes, and what the caller is told of it.
#include "lowering/lower.h"

#include "tests/lowering/testing.h"
#include "tests/lowering/wire_reader.h"

namespace xla_cc {
namespace {

using hlo::ElementType;
using hlo::Shape;

struct Case {
  const char* name;
  Collective collective;
  std::vector<Shape> operands;
  std::string target;
  Rule rule;
  const char* opcodes;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Choices : public testing::TestWithParam<Case> {};

TEST_P(Choices, RuleAndOpcodes) {
  const Case& c = GetParam();
  const Target target = TargetOf(c.target);
  const Lowered lowered = MustLower(c.collective, c.operands, target);
  EXPECT_EQ(Name(lowered.rule), Name(c.rule));
  const bool alone = lowered.why.find("one instruction for each operand: ") == 0;
  EXPECT_EQ(lowered.why.empty() || alone, c.rule == Rule::kNative) << lowered.why;
  EXPECT_EQ(Join(lowered.opcodes), c.opcodes);
  EXPECT_EQ(lowered.takes_token, target.CallsTakeTokens());
  EXPECT_EQ(lowered.live.size(), c.operands.size());
  // The opcodes are those of the module.
  std::vector<std::string> emitted;
  for (const ReadInstruction& instruction : ReadModule(lowered.bytes).Instructions()) {
    const bool collective = instruction.proto.Has(87) || instruction.proto.Has(52) ||
                            instruction.opcode == "send" || instruction.opcode == "recv";
    if (collective) emitted.push_back(instruction.opcode);
  }
  EXPECT_EQ(lowered.opcodes, emitted);
}

constexpr Rule kNative = Rule::kNative;
constexpr Rule kFallback = Rule::kFallback;
constexpr char kCpu[] = "cpu:8";
constexpr char kTpu[] = "tpu:v5e:2x4";
constexpr char kGpu[] = "gpu:h100x8";
const std::vector<Shape> kOne = {F32({8, 8})};
const std::vector<Shape> kMixed = {F32({8}), {ElementType::kBF16, {8}}, F32({16, 2})};
const std::vector<Shape> kWide = {{ElementType::kS64, {8}}};
const std::vector<Shape> kF8 = {{ElementType::kF8E5M2, {8}}};
const std::vector<Shape> kC64 = {{ElementType::kC64, {8}}};
const Pairs kOnePair = {{0, 1}};
const AllReduce kXor{{ReduceKind::kXor}, {}};

INSTANTIATE_TEST_SUITE_P(
    Ops, Choices,
    testing::Values(
        Case{"GatherCpu", AllGather{}, kOne, kCpu, kNative, "all-gather"},
        Case{"GatherTpu", AllGather{}, kOne, kTpu, kNative, "all-gather"},
        Case{"GatherGpu", AllGather{}, kOne, kGpu, kNative, "all-gather"},
        Case{"GatherOther", AllGather{}, kOne, "other:8", kNative, "all-gather"},
        Case{"ReduceCpu", AllReduce{}, kOne, kCpu, kNative, "all-reduce"},
        Case{"ReduceTpu", AllReduce{}, kOne, kTpu, kNative, "all-reduce"},
        Case{"ReduceF8Cpu", AllReduce{}, kF8, kCpu, kFallback, "all-reduce"},
        Case{"ReduceF8Tpu", AllReduce{}, kF8, kTpu, kNative, "all-reduce"},
        Case{"ReduceXorCpu", kXor, {S32({8})}, kCpu, kFallback, "all-gather"},
        Case{"ReduceXorTpu", kXor, {S32({8})}, kTpu, kNative, "all-reduce"},
        Case{"ReduceXorGpu", kXor, {S32({8})}, kGpu, kFallback, "all-gather"},
        Case{"ScatterCpu", ReduceScatter{}, kOne, kCpu, kNative, "reduce-scatter"},
        Case{"ScatterTpu", ReduceScatter{}, kOne, kTpu, kNative, "reduce-scatter"},
        Case{"ScatterWideTpu", ReduceScatter{}, kWide, kTpu, kFallback, "all-to-all"},
        Case{"ScatterWideGpu", ReduceScatter{}, kWide, kGpu, kNative, "reduce-scatter"},
        Case{"ScatterF8Gpu", ReduceScatter{}, kF8, kGpu, kFallback, "reduce-scatter"},
        Case{"PermuteCpu", CollectivePermute{kOnePair}, kOne, kCpu, kFallback, "all-gather"},
        Case{"PermuteTpu", CollectivePermute{kOnePair}, kOne, kTpu, kNative, "collective-permute"},
        Case{"ExchangeCpu", AllToAll{}, kOne, kCpu, kFallback, "all-gather"},
        Case{"ExchangeTpu", AllToAll{}, kOne, kTpu, kNative, "all-to-all"},
        Case{"ExchangeGpu", AllToAll{1, 0, {}, {}}, kOne, kGpu, kNative, "all-to-all"},
        Case{"BroadcastCpu", CollectiveBroadcast{}, kOne, kCpu, kFallback, "all-reduce"},
        Case{"BroadcastC64Tpu", CollectiveBroadcast{}, kC64, kTpu, kFallback,
             "all-reduce all-reduce"},
        Case{"BroadcastGpu", CollectiveBroadcast{}, kOne, kGpu, kNative, "collective-broadcast"},
        Case{"BroadcastUnequalGpu", CollectiveBroadcast{0, UnequalGroups(8)}, kOne, kGpu, kNative,
             "collective-broadcast"},
        Case{"BroadcastPartialGpu", CollectiveBroadcast{0, PartialGroups(8)}, kOne, kGpu, kFallback,
             "all-reduce"},
        Case{"SendCpu", Send{1, kOnePair}, kOne, kCpu, kFallback, ""},
        Case{"SendTpu", Send{1, kOnePair}, kOne, kTpu, kFallback, ""},
        Case{"SendGpu", Send{1, kOnePair}, kOne, kGpu, kFallback, ""},
        Case{"RecvCpu", Recv{1, kOnePair}, kOne, kCpu, kFallback, "all-gather"},
        Case{"RecvTpu", Recv{1, kOnePair}, kOne, kTpu, kFallback, "collective-permute"},
        // What ranks on threads lack, and partitions do not.
        Case{"PermuteSpmdCpu", CollectivePermute{kOnePair}, kOne, "spmd:cpu:8", kNative,
             "collective-permute"},
        Case{"ExchangeSpmdCpu", AllToAll{}, kOne, "spmd:cpu:8", kNative, "all-to-all"},
        Case{"BroadcastSpmdCpu", CollectiveBroadcast{}, kOne, "spmd:cpu:8", kFallback,
             "all-reduce"},
        Case{"RecvSpmdTpu", Recv{1, kOnePair}, kOne, "spmd:tpu:v5e:2x4", kFallback,
             "collective-permute"},
        Case{"RecvGpu", Recv{1, kOnePair}, kOne, kGpu, kFallback, "collective-permute"}),
    [](const auto& info) { return info.param.name; });

// A list is one instruction for each type, or for each operand where the compiler takes no lists.
INSTANTIATE_TEST_SUITE_P(
    Lists, Choices,
    testing::Values(
        Case{"GatherCpu", AllGather{}, kMixed, kCpu, kNative, "all-gather all-gather"},
        Case{"GatherTpu", AllGather{}, kMixed, kTpu, kNative, "all-gather all-gather all-gather"},
        Case{"ReduceCpu", AllReduce{}, kMixed, kCpu, kNative, "all-reduce all-reduce all-reduce"},
        Case{"ReduceTpu", AllReduce{}, kMixed, kTpu, kNative, "all-reduce all-reduce"},
        Case{"ScatterCpu", ReduceScatter{}, kMixed, kCpu, kNative, "reduce-scatter reduce-scatter"},
        Case{"ScatterTpu", ReduceScatter{}, kMixed, kTpu, kNative,
             "reduce-scatter reduce-scatter reduce-scatter"},
        Case{"ScatterGpu", ReduceScatter{}, kMixed, kGpu, kNative, "reduce-scatter reduce-scatter"},
        Case{"PermuteTpu", CollectivePermute{kOnePair}, kMixed, kTpu, kNative,
             "collective-permute collective-permute collective-permute"},
        // One operand that needs the fallback makes it the rule of the call; the others stay
        // native.
        Case{"ReduceSomeF8Gpu",
             AllReduce{},
             {F32({8}), {ElementType::kF8E5M2, {8}}, F32({4})},
             kGpu,
             kFallback,
             "all-reduce all-reduce"},
        Case{"ReduceXorSomePredGpu",
             kXor,
             {{ElementType::kPred, {8}}, S32({8})},
             kGpu,
             kFallback,
             "all-reduce all-gather"}),
    [](const auto& info) { return info.param.name; });

// Results come in the order of the operands, also where instructions are grouped by type.
TEST(Lower, ListsKeepTheirOrder) {
  const Lowered lowered = MustLower(AllGather{}, kMixed, TargetOf(kTpu));
  EXPECT_EQ(ToString(lowered.results), "f32[64] bf16[64] f32[128,2]");
  const ReadModule module(lowered.bytes);
  const std::vector<WireReader> shapes = WireReader(module.entry_shape).Sub(2).Subs(4);
  ASSERT_EQ(shapes.size(), 3u);
  for (size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_EQ(shapes[i].Int(2), static_cast<int64_t>(lowered.results[i].type));
    EXPECT_EQ(shapes[i].Packed(3), lowered.results[i].dims);
  }
}

TEST(Lower, NameAndIdentity) {
  const Lowered lowered =
      MustLower(AllGather{-1, Groups(Lists{{0, 3}, {1, 2}})}, {F32({2, 3}), S32({4, 5})}, Cpu4());
  EXPECT_EQ(lowered.name, "all_gather(dim=1, groups=[[0,3],[1,2]])");
  // Ranks need not agree on the groups that they are not in.
  EXPECT_EQ(lowered.identity, "all_gather(dim=1) f32[2,3] s32[4,5]");
}

TEST(Lower, AbsentMembersOfTypesWithoutInfinity) {
  const auto text = [](ReduceKind kind, ElementType type) {
    const AllReduce node{{kind}, Groups(Lists{{0, 1, 2}, {3, 4, 5, 6, 7}})};
    return MustLower(node, {Shape{type, {8}}}, TargetOf("tpu:v5e:2x4", 8)).text;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(text(ReduceKind::kMin, ElementType::kF8E4M3FN), "value=448"));
  EXPECT_TRUE(has(text(ReduceKind::kMax, ElementType::kF8E4M3FN), "value=-448"));
  EXPECT_TRUE(has(text(ReduceKind::kMin, ElementType::kF8E5M2), "value=inf"));
}

TEST(Lower, EncountersFollowGroupsOfOthers) {
  const auto encounters = [](const auto& op, int64_t rank) {
    return ToString(MustLower(op, {F32({2})}, Cpu4()).encounters, rank, 4);
  };
  const auto gather = [&](const Lists& lists) {
    return encounters(AllGather{0, Groups(lists)}, 0);
  };
  EXPECT_EQ(gather({{0, 1}, {2, 3}}), "all-gather f32[4] of [0,1]");
  EXPECT_EQ(gather({{0, 1}, {3, 2}}), "all-gather f32[4] of [0,1]");
  EXPECT_EQ(gather({{1, 0}, {3, 2}}), "all-gather f32[4] of [1,0]");
  EXPECT_EQ(gather({{0, 1}, {2}, {3}}), "all-reduce u32[4] of [0,1]");
  EXPECT_EQ(gather({{0}, {1, 2, 3}}), "all-reduce u32[6] of [0]");
  // A sum has no order, and all who sum in a group meet.
  for (const Lists& lists : {Lists{{1, 0}, {2, 3}}, Lists{{1, 0}}, Lists{{0, 1}, {3, 2}}}) {
    EXPECT_EQ(encounters(AllReduce{{}, Groups(lists)}, 1), "all-reduce f32[2] of [0,1]");
  }
}

TEST(Lower, NamesOfAllOps) {
  const std::vector<std::pair<Collective, std::string>> expected = {
      {AllGather{}, "all_gather(dim=0, groups=world)"},
      {AllReduce{}, "all_reduce(reduce_type=sum, scale=1, factor=1, groups=world)"},
      {ReduceScatter{{ReduceKind::kMax, 0.5}, 0, 4, {}},
       "reduce_scatter(reduce_type=max, scale=0.5, factor=1, dim=0, groups=world)"},
      {CollectivePermute{{{3, 0}, {0, 3}}}, "collective_permute(pairs=(0->3)(3->0))"},
      {AllToAll{0, 1, 4, {}}, "all_to_all(split_dim=0, concat_dim=1, groups=world)"},
      {CollectiveBroadcast{2, {}}, "collective_broadcast(root=2, groups=world)"},
      {Send{5, {{0, 1}}}, "send(channel=5, pairs=(0->1))"},
      {Recv{5, {{0, 1}}}, "recv(channel=5, pairs=(0->1))"},
  };
  for (const auto& [collective, name] : expected) {
    EXPECT_EQ(MustLower(collective, {F32({4, 4})}, Cpu4()).name, name);
  }
}

// Attributes are shown as they were given, until they are verified.
TEST(Lower, NamesOfWhatWasGiven) {
  EXPECT_EQ(ToString(ReduceScatter{{}, -1, 4, Groups(Lists{{0, 1, 2, 3}})}),
            "reduce_scatter(reduce_type=sum, scale=1, factor=1, dim=-1, shard_count=4, "
            "groups=[[0,1,2,3]])");
  EXPECT_EQ(ToString(AllToAll{0, 1, 4, {}}, /*with_groups=*/false),
            "all_to_all(split_dim=0, concat_dim=1, split_count=4)");
  EXPECT_EQ(GroupsOf(AllToAll{0, 1, 4, Groups(Lists{{1, 0}})}).list(), Lists({{1, 0}}));
  EXPECT_TRUE(GroupsOf(Send{1, {{0, 1}}}).IsWorld());
}

// Any finite scale is lowered; lowering never throws.
TEST(Lower, ScalesOfAnySizeThatTheTypeHolds) {
  const double scales[] = {
      0, -0.0, 0.1, -3, 1e300, 1.7976931348623157e308, 2.2250738585072014e-308, 5e-324};
  for (const double scale : scales) {
    for (const ElementType type : {ElementType::kF64, ElementType::kF32, ElementType::kBF16}) {
      const AllReduce node{{ReduceKind::kSum, scale}, {}};
      const bool held = type == ElementType::kF64 || scale < 1e39;
      EXPECT_NO_THROW(EXPECT_EQ(Lower(node, {{type, {8}}}, Tpu8()).ok(), held)) << scale;
    }
  }
}

TEST(Lower, SaysWhyOperandsTravelAlone) {
  const std::vector<Shape> two = {F32({8, 4}), F32({16, 4})};
  const Lowered apart = MustLower(ReduceScatter{}, two, Tpu8());
  EXPECT_EQ(apart.rule, Rule::kNative);
  EXPECT_EQ(Join(apart.opcodes), "reduce-scatter reduce-scatter");
  EXPECT_EQ(apart.why, "one instruction for each operand: the TPU compiler crashes on it");
  EXPECT_EQ(MustLower(ReduceScatter{}, two, Gpu8()).why, "");
  EXPECT_EQ(MustLower(ReduceScatter{}, {two[0]}, Tpu8()).why, "");
  EXPECT_EQ(MustLower(AllToAll{}, two, Tpu8()).why, "") << "it has no other form";
}

}  // namespace
}  // namespace xla_cc
