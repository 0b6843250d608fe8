// Native and fallback rule of every op stand for the same thing: same operands, same result shapes,
// on every device, also where the capability table would not choose them.
#include "lowering/rules/lower_op.h"
#include "tests/lowering/testing.h"
#include "tests/lowering/wire_reader.h"

namespace xla_cc {
namespace {

using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

class Rules : public testing::TestWithParam<std::string> {};

struct Built {
  std::vector<Shape> shapes;
  std::vector<std::string> opcodes;
  std::string text;
};

template <class T>
Built Build(const T& node, const Shape& operand, const Target& target, bool native) {
  hlo::Module module;
  hlo::Computation entry = module.Begin("entry");
  const Values operands = {entry.Parameter(operand)};
  const Value token = entry.Parameter({ElementType::kS32, {1}});
  Emitter emitter(target, &module, &entry, 77, target.CallsTakeTokens() ? &token : nullptr);
  const Values results =
      native ? node.LowerNative(emitter, operands) : Values{Continue(node, emitter, operands[0])};
  entry.Return(results);
  module.Finish(entry);
  Built built{{}, emitter.opcodes(), module.text()};
  for (const Value& result : results) built.shapes.push_back(result.shape);
  // What the module itself says of its result.
  const WireReader shape = WireReader(ReadModule(module.Serialize({})).entry_shape).Sub(2);
  EXPECT_EQ(shape.Packed(3), results[0].shape.dims);
  EXPECT_EQ(shape.Int(2), static_cast<int64_t>(results[0].shape.type));
  return built;
}

TEST_P(Rules, HaveTheSameResults) {
  const Target target = TargetOf(GetParam());
  int both = 0;
  for (const Sample& sample : Samples(target.world_size)) {
    for (const ElementType type : kTypicalTypes) {
      const Shape operand{type, sample.dims};
      const Call call{target, {operand}};
      Collective collective = sample.collective;
      Visit(collective, [&](auto& node) {
        if (!node.Verify(call).ok()) return;
        SCOPED_TRACE(sample.name + " of " + std::string(hlo::Name(type)));
        const std::vector<Shape> expected = node.Results(call);
        EXPECT_EQ(Build(node, operand, target, true).shapes, expected);
        EXPECT_EQ(Build(node, operand, target, false).shapes, expected);
        ++both;
      });
    }
  }
  EXPECT_GT(both, 200);
}

INSTANTIATE_TEST_SUITE_P(Targets, Rules,
                         testing::Values("cpu:4", "pod:4", "tpu:v5e:2x4", "gpu:h100x8"),
                         [](const auto& info) { return info.param.substr(0, 3); });

struct Form {
  std::string name;
  Collective collective;
  Shape operand;
  std::string target;
  bool native;
  std::string opcodes;
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class Decompositions : public testing::TestWithParam<Form> {};

// The opening equation of each fallback, in opcodes.
TEST_P(Decompositions, AreWhatTheirEquationsSay) {
  const Form& form = GetParam();
  const Target target = TargetOf(form.target);
  Collective collective = form.collective;
  Visit(collective, [&](auto& node) {
    ASSERT_TRUE(node.Verify({target, {form.operand}}).ok());
    EXPECT_EQ(Join(Build(node, form.operand, target, form.native).opcodes), form.opcodes);
  });
}

const Shape kF32 = F32({8, 8});
const Shape kC64 = {ElementType::kC64, {8, 8}};
const Shape kF8 = {ElementType::kF8E4M3FN, {8, 8}};
const AllReduce kXor{{ReduceKind::kXor}, {}};
const ReduceScatter kScatterXor{{ReduceKind::kXor}, 0, {}, {}};
constexpr char kTpu[] = "tpu:v5e:2x4";
constexpr char kCpu[] = "cpu:4";
constexpr char kPod[] = "pod:4";
const Groups kSome({{0, 1, 2}});

INSTANTIATE_TEST_SUITE_P(
    Ops, Decompositions,
    testing::Values(
        Form{"Gather", AllGather{}, kF32, kTpu, false, "all-reduce"},
        Form{"GatherComplex", AllGather{}, kC64, kTpu, false, "all-reduce all-reduce"},
        Form{"GatherNative", AllGather{}, kC64, kTpu, true, "all-gather"},
        Form{"ReduceXor", kXor, S32({8}), kTpu, false, "all-gather"},
        Form{"ReduceF8", AllReduce{}, kF8, kCpu, false, "all-reduce"},
        Form{"ScatterXor", kScatterXor, S32({8}), kCpu, false, "all-gather"},
        Form{"ScatterXorTpu", kScatterXor, S32({8}), kTpu, false, "all-to-all"},
        Form{"Scatter", ReduceScatter{}, kF32, kTpu, false, "all-to-all"},
        Form{"ScatterOnCpu", ReduceScatter{}, kF32, kCpu, false, "all-reduce"},
        Form{"ScatterF8", ReduceScatter{}, kF8, kCpu, false, "reduce-scatter"},
        // Of a group of a pod only its members meet: no instruction of the world is made of it.
        Form{"GatherOfSome", AllGather{0, kSome}, kF32, kPod, false, "all-reduce"},
        Form{"GatherOfSomeOnTpu", AllGather{0, kSome}, kF32, "tpu:v5e:2x2", false, "all-gather"},
        Form{"ReduceOfSome", AllReduce{{ReduceKind::kXor}, kSome}, S32({8}), kPod, false,
             "all-reduce"},
        Form{"Exchange", AllToAll{}, kF32, kTpu, false, "all-gather"},
        Form{"ExchangeNative", AllToAll{}, kF32, kTpu, true, "all-to-all"},
        Form{"Permute", CollectivePermute{{{0, 1}}}, kF32, kTpu, false, "all-gather"},
        Form{"PermuteNative", CollectivePermute{{{0, 1}}}, kF32, kTpu, true, "collective-permute"},
        Form{"Broadcast", CollectiveBroadcast{}, kF32, kTpu, false, "all-reduce"},
        Form{"BroadcastComplex", CollectiveBroadcast{}, kC64, kTpu, false, "all-reduce all-reduce"},
        Form{"BroadcastNative", CollectiveBroadcast{}, kC64, kTpu, true, "collective-broadcast"},
        Form{"Send", Send{1, {{0, 1}}}, kF32, kTpu, false, ""},
        Form{"SendNative", Send{1, {{0, 1}}}, kF32, kTpu, true, "send"},
        Form{"Recv", Recv{1, {{0, 1}}}, kF32, kTpu, false, "collective-permute"},
        Form{"RecvOnCpu", Recv{1, {{0, 1}}}, kF32, kCpu, false, "all-gather"},
        Form{"RecvNative", Recv{1, {{0, 1}}}, kF32, kTpu, true, "recv"}),
    [](const auto& info) { return info.param.name; });

// Where a fallback depends on the rank, it looks itself up in a table, one entry a rank.
struct Table {
  std::string name;
  Collective collective;
  std::vector<std::string> tables;
};

void PrintTo(const Table& table, std::ostream* out) { *out << table.name; }

class Tables : public testing::TestWithParam<Table> {};

TEST_P(Tables, HoldWhatTheRankNeeds) {
  const Target target = TargetOf("cpu:8");
  const Shape operand = F32({8, 16});
  Collective collective = GetParam().collective;
  Visit(collective, [&](auto& node) {
    ASSERT_TRUE(node.Verify({target, {operand}}).ok());
    const std::string text = Build(node, operand, target, false).text;
    std::vector<std::string> tables;
    for (size_t at = 0; (at = text.find("value={", at)) != std::string::npos; ++at) {
      tables.push_back(text.substr(at + 7, text.find('}', at) - at - 7));
    }
    EXPECT_EQ(tables, GetParam().tables) << text;
  });
}

const Groups kStrided(Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
const Groups kTurned(Lists{{3, 2, 1, 0}, {4, 5, 6, 7}});

INSTANTIATE_TEST_SUITE_P(
    Fallbacks, Tables,
    testing::Values(
        // The start of the own block among those of the group.
        Table{"Gather", AllGather{1, {}}, {"0,16,32,48,64,80,96,112"}},
        Table{"GatherStrided", AllGather{0, kStrided}, {"0,0,0,0,8,8,8,8"}},
        Table{"Scatter", ReduceScatter{{}, 1, {}, {}}, {"0,2,4,6,8,10,12,14"}},
        // The order of the blocks, a row for each rank.
        Table{"ScatterTurned",
              ReduceScatter{{}, 0, {}, kTurned},
              {"6,4,2,0,6,4,2,0,6,4,2,0,6,4,2,0,0,2,4,6,0,2,4,6,0,2,4,6,0,2,4,6"}},
        Table{"Exchange", AllToAll{1, 0, {}, {}}, {"0,2,4,6,8,10,12,14"}},
        Table{"ExchangeTurned", AllToAll{1, 0, {}, kTurned}, {"12,8,4,0,0,4,8,12"}},
        // Round by round: at which place the partner is, and whether it is meant for this rank.
        Table{"Permute",
              CollectivePermute{Ring(8)},
              {"0,0,0,0,0,0,0,0", "1,0,1,0,1,0,1,0", "1,1,0,1,0,1,0,0", "1,0,1,0,1,0,1,0"}},
        Table{"PermutePart",
              CollectivePermute{{{5, 0}, {2, 7}}},
              {"0,0,0,0,0,0,0,0", "1,1,1,0,1,0,0,0", "1,0,0,0,0,0,0,1"}},
        // Whether this rank is its group's root.
        Table{"Broadcast", CollectiveBroadcast{6, {}}, {"0,0,0,0,0,0,1,0"}},
        Table{"BroadcastTurned", CollectiveBroadcast{5, kTurned}, {"0,0,1,0,0,1,0,0"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace xla_cc
