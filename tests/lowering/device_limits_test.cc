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

const Shape kComplex128 = {ElementType::kC128, {8}};

INSTANTIATE_TEST_SUITE_P(
    Device, Limits,
    testing::Values(
        // No program for a TPU takes the type, so there is nothing that a fallback could start from.
        Limit{"C1", "TpuGather", AllGather{}, kComplex128, Tpu8()},
        Limit{"C1", "TpuReduce", AllReduce{}, kComplex128, Tpu8()},
        Limit{"C1", "TpuBroadcast", CollectiveBroadcast{}, kComplex128, Tpu8()},
        Limit{"C1", "TpuPermute", CollectivePermute{Ring(8)}, kComplex128, Tpu8()}),
    [](const auto& info) { return info.param.name; });

TEST(Limits, NameTheOperand) {
  const std::vector<Shape> operands = {
      F32({8}), {ElementType::kC128, {0}}, {ElementType::kC128, {4}}};
  const std::string message = MessageOf(Lower(AllReduce{}, operands, Tpu8()));
  EXPECT_EQ(message.find("all_reduce: operand 2 = c128[4], but"), 0u) << message;
  // What has no elements is not asked of the device.
  EXPECT_TRUE(Lower(AllReduce{}, {operands[0], operands[1]}, Tpu8()).ok());
}

// A device that takes nothing at all has nothing to build a fallback of: refused, and not lowered in
// circles.
TEST(Limits, NothingAtAll) {
  std::vector<int64_t> handles;
  for (const Op op : kAllOps) {
    handles.push_back(Register({"abacus", op, {}, {}, {}, false, "it has beads only"}));
  }
  const Target target = TargetOf("abacus", 8);
  for (const Sample& sample : Samples(8)) {
    const Op op = OpFor(sample.collective);
    if (op == Op::kSend) continue;  // recv does the work
    for (const ElementType type : kTypicalTypes) {
      Collective collective = sample.collective;
      const Shape operand{type, sample.dims};
      if (!ResultShapes(collective, {operand}, target).ok()) continue;
      const std::string message = MessageOf(Lower(collective, {operand}, target));
      EXPECT_NE(message.find("it has beads only"), std::string::npos) << sample.name << message;
    }
  }
  for (const int64_t handle : handles) Unregister(handle);
}

// The same from the other side, for everything that is not refused: instructions that want groups
// of one size have them.
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
        EXPECT_FALSE(unequal) << sample.name << " of " << hlo::Name(type) << "\n"
                              << lowered.value().text;
      }
    }
  }
  EXPECT_GT(lowered_count, 300);
}

INSTANTIATE_TEST_SUITE_P(Targets, EverythingElse,
                         testing::Values("cpu:4", "tpu:v5e:2x4", "gpu:h100x8"),
                         [](const auto& info) { return info.param.substr(0, 3); });

}  // namespace
}  // namespace xla_cc
