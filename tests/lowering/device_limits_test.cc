// (C1): what a device has no rule for is refused. Never is it lowered to something else.
#include <set>

#include "tests/lowering/testing.h"
#include "tests/lowering/wire_reader.h"

namespace xla_cc {
namespace {

using hlo::ElementType;
using hlo::Shape;

struct Limit {
  const char* label;
  const char* name;
  Collective collective;
  Shape operand;
  Target target;
};

void PrintTo(const Limit& limit, std::ostream* out) { *out << limit.name; }

class Limits : public testing::TestWithParam<Limit> {};

TEST_P(Limits, AreRefused) {
  const Limit& limit = GetParam();
  const Result<Lowered> lowered = Lower(limit.collective, {limit.operand}, limit.target);
  ASSERT_FALSE(lowered.ok()) << lowered.value().text;
  const std::string& message = lowered.status().message();
  const std::string begin = Name(OpFor(limit.collective)) +
                            ": operand 0 = " + limit.operand.ToString() +
                            ", but it must be something that " + limit.target.name + " can do: ";
  EXPECT_EQ(message.substr(0, begin.size()), begin);
  EXPECT_NE(message.find(std::string(" (") + limit.label +
                         "). Convert it to another type, or use groups of one size."),
            std::string::npos)
      << message;
  EXPECT_TRUE(ResultShapes(limit.collective, {limit.operand}, limit.target).ok());
}

const Groups kUnequal4 = UnequalGroups(4);
const Groups kUnequal8 = UnequalGroups(8);

AllReduce Reduce(ReduceKind kind, const Groups& groups) { return {{kind}, groups}; }

INSTANTIATE_TEST_SUITE_P(
    Device, Limits,
    testing::Values(
        Limit{"C1", "TpuUnequalGroups", AllReduce{{}, kUnequal8}, F32({8}), Tpu8()},
        Limit{"C1",
              "TpuWideProduct",
              Reduce(ReduceKind::kProduct, {}),
              {ElementType::kF64, {8}},
              Tpu8()},
        Limit{"C1", "TpuWideMin", Reduce(ReduceKind::kMin, {}), {ElementType::kS64, {8}}, Tpu8()},
        // A fallback is built of other ops, which the device may lack as well.
        Limit{"C1", "TpuBroadcastInUnequalGroups", CollectiveBroadcast{0, kUnequal8}, F32({8}),
              Tpu8()},
        Limit{"C1",
              "TpuWideProductScattered",
              ReduceScatter{{ReduceKind::kProduct}, 0, {}, {}},
              {ElementType::kS64, {8}},
              Tpu8()},
        Limit{"C1",
              "TpuWideMaxScattered",
              ReduceScatter{{ReduceKind::kMax}, 0, {}, {}},
              {ElementType::kF64, {8}},
              Tpu8()},
        Limit{"C1", "CpuBitwiseInUnequalGroups", Reduce(ReduceKind::kXor, kUnequal4), S32({8}),
              Cpu4()},
        Limit{"C1",
              "CpuXorOfPredInUnequalGroups",
              Reduce(ReduceKind::kXor, kUnequal4),
              {ElementType::kPred, {8}},
              Cpu4()},
        Limit{"C1", "GpuBitwiseInUnequalGroups", Reduce(ReduceKind::kAnd, kUnequal8), S32({8}),
              Gpu8()}),
    [](const auto& info) { return info.param.name; });

TEST(Limits, NameTheOperand) {
  const AllReduce product{{ReduceKind::kProduct}, {}};
  const std::vector<Shape> operands = {
      F32({8}), {ElementType::kF64, {0}}, {ElementType::kF64, {4}}};
  const std::string message = MessageOf(Lower(product, operands, Tpu8()));
  EXPECT_EQ(message.find("all_reduce: operand 2 = f64[4], but"), 0u) << message;
  // What has no elements is not asked of the device.
  EXPECT_TRUE(Lower(product, {operands[0], operands[1]}, Tpu8()).ok());
}

// The same from the other side, for everything that is not refused: instructions that want groups
// of one size have them, and what is reduced on each rank starts from the reduction's identity.
class EverythingElse : public testing::TestWithParam<std::string> {};

bool NeedsUniformGroups(const std::string& opcode) {
  return opcode == "all-gather" || opcode == "reduce-scatter" || opcode == "all-to-all";
}

bool ListsUnequalGroups(const ReadInstruction& instruction) {
  std::set<size_t> sizes;
  for (const WireReader& group : instruction.proto.Sub(87).Subs(1)) {
    sizes.insert(group.Packed(1).size());
  }
  return sizes.size() > 1;
}

// The opcodes of what a reduce calls: our initial value is zero, or for `and` its complement.
bool StartsFromZero(const ReadModule& module, const ReadInstruction& reduce) {
  for (const ReadComputation& computation : module.computations) {
    if (computation.id != reduce.called.at(0)) continue;
    const std::string opcode = computation.instructions.back().opcode;
    return opcode == "and" || opcode == "or" || opcode == "xor" || opcode == "add";
  }
  return false;
}

TEST_P(EverythingElse, HasNoWrongInstructions) {
  const Target target = TargetOf(GetParam());
  int lowered_count = 0;
  for (const Sample& sample : Samples(target.world_size)) {
    for (const ElementType type : kTypicalTypes) {
      const Result<Lowered> lowered = Lower(sample.collective, {{type, sample.dims}}, target);
      if (!lowered.ok()) continue;
      ++lowered_count;
      const ReadModule module(lowered.value().bytes);
      for (const ReadInstruction& instruction : module.Instructions()) {
        const bool unequal =
            NeedsUniformGroups(instruction.opcode) && ListsUnequalGroups(instruction);
        const bool wrong_start =
            instruction.opcode == "reduce" && !StartsFromZero(module, instruction);
        EXPECT_FALSE(unequal || wrong_start) << sample.name << " of " << hlo::Name(type) << "\n"
                                             << lowered.value().text;
      }
    }
  }
  EXPECT_GT(lowered_count, 300);
}

INSTANTIATE_TEST_SUITE_P(Targets, EverythingElse,
                         testing::Values("cpu:4", "tpu:v5e:2x4", "gpu:h100x8", "neuron:trn:8"),
                         [](const auto& info) { return info.param.substr(0, 3); });

}  // namespace
}  // namespace xla_cc
