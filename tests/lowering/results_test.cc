// The shapes of results, and what surrounds them: canonical attributes, live and empty operands.
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
  const char* results;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Results : public testing::TestWithParam<Case> {};

// The same on every device, whatever rule it takes.
TEST_P(Results, Shapes) {
  for (const char* name : {"cpu:8", "tpu:v5e:2x4", "gpu:h100x8", "neuron:trn:8"}) {
    const Target target = TargetOf(name);
    const auto shapes = ResultShapes(GetParam().collective, GetParam().operands, target);
    ASSERT_TRUE(shapes.ok()) << shapes.status().message();
    EXPECT_EQ(ToString(shapes.value()), GetParam().results) << name;
    const Lowered lowered = MustLower(GetParam().collective, GetParam().operands, target);
    EXPECT_EQ(lowered.results, shapes.value()) << name;
  }
}

const Groups kPairs(Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}});

INSTANTIATE_TEST_SUITE_P(
    All, Results,
    testing::Values(
        Case{"GatherFirst", AllGather{}, {F32({2, 3})}, "f32[16,3]"},
        Case{"GatherLast", AllGather{-1, {}}, {F32({2, 3})}, "f32[2,24]"},
        Case{"GatherPairs", AllGather{1, kPairs}, {F32({2, 3})}, "f32[2,6]"},
        Case{"GatherScalar", AllGather{}, {F32({})}, "f32[8]"},
        Case{"GatherScalarFromTheEnd", AllGather{-1, {}}, {F32({})}, "f32[8]"},
        Case{"GatherScalarAndVector", AllGather{-1, {}}, {F32({}), S32({3})}, "f32[8] s32[24]"},
        Case{"GatherNothing", AllGather{}, {F32({0, 3})}, "f32[0,3]"},
        Case{"GatherList", AllGather{}, {F32({2}), S32({3, 4})}, "f32[16] s32[24,4]"},
        Case{"ReduceScalar", AllReduce{}, {F32({})}, "f32[]"},
        Case{"ReduceList", AllReduce{}, {F32({2}), S32({3, 4})}, "f32[2] s32[3,4]"},
        Case{"ScatterFirst", ReduceScatter{}, {F32({16, 3})}, "f32[2,3]"},
        Case{"ScatterLast", ReduceScatter{{}, -1, {}, {}}, {F32({3, 8})}, "f32[3,1]"},
        Case{"ScatterPairs", ReduceScatter{{}, 0, 2, kPairs}, {F32({16, 3})}, "f32[8,3]"},
        Case{"ScatterNothing", ReduceScatter{}, {F32({0})}, "f32[0]"},
        Case{"ExchangeInPlace", AllToAll{}, {F32({16, 3})}, "f32[16,3]"},
        Case{"ExchangeUp", AllToAll{0, 1, {}, {}}, {F32({16, 3})}, "f32[2,24]"},
        Case{"ExchangeDown", AllToAll{1, 0, 8, {}}, {F32({3, 16})}, "f32[24,2]"},
        Case{"ExchangeFromTheEnd", AllToAll{-1, -2, {}, {}}, {F32({3, 16})}, "f32[24,2]"},
        Case{"ExchangePairs", AllToAll{0, 1, {}, kPairs}, {F32({16, 3})}, "f32[8,6]"},
        Case{"Permute", CollectivePermute{{{0, 1}}}, {F32({16, 3})}, "f32[16,3]"},
        Case{"Broadcast", CollectiveBroadcast{3, {}}, {F32({16, 3})}, "f32[16,3]"},
        Case{"Send", Send{1, {{0, 1}}}, {F32({16, 3})}, "f32[16,3]"},
        Case{"Recv", Recv{1, {{0, 1}}}, {F32({16, 3})}, "f32[16,3]"}),
    [](const auto& info) { return info.param.name; });

// Operands without elements take no part; without any other there is no module at all.
class Empties : public testing::TestWithParam<Op> {};

Collective AnyCallOf(Op op) {
  for (const Sample& sample : Samples(4)) {
    const bool everywhere = GroupsOf(sample.collective).Uniform();
    if (OpFor(sample.collective) == op && everywhere) return sample.collective;
  }
  ADD_FAILURE() << "no sample of " << Name(op);
  return {};
}

TEST_P(Empties, TakeNoPart) {
  const Collective collective = AnyCallOf(GetParam());
  const Shape full = F32({8, 8, 3});
  const Shape empty = F32({8, 8, 0});
  for (const Target& target : {Cpu4(), TargetOf("tpu", 4), TargetOf("gpu", 4)}) {
    const Lowered none = MustLower(collective, {empty, empty}, target);
    EXPECT_TRUE(none.bytes.empty() && none.text.empty() && none.fingerprint.empty());
    EXPECT_TRUE(none.live.empty() && none.opcodes.empty());
    EXPECT_FALSE(none.takes_token);
    EXPECT_EQ(none.results.size(), 2u);
    EXPECT_EQ(none.results[0].Elements(), 0);

    const Lowered some = MustLower(collective, {empty, full, empty, full}, target);
    EXPECT_EQ(some.live, std::vector<size_t>({1, 3}));
    EXPECT_EQ(some.results.size(), 4u);
    const Lowered alone = MustLower(collective, {full, full}, target);
    EXPECT_EQ(alone.live, std::vector<size_t>({0, 1}));
    EXPECT_EQ(some.opcodes, alone.opcodes);
    const size_t tokens = target.CallsTakeTokens() ? 1 : 0;
    const ReadModule module(some.bytes);
    EXPECT_EQ(WireReader(module.entry_shape).Subs(1).size(), 2 + tokens);
    EXPECT_EQ(WireReader(module.entry_shape).Sub(2).Subs(4).size(), 2 + tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Empties, testing::ValuesIn(kAllOps),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace xla_cc
