// (C1): what a device has no rule for is refused. Never is it lowered to something else.
#include <cctype>
#include <map>
#include <optional>

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
        // No program for a TPU takes the type, so there is nothing that a fallback could start
        // from.
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

// A device that takes nothing at all has nothing to build a fallback of: refused, and not lowered
// in circles.
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

// The same from the other side, for everything that is not refused: each collective instruction in
// a module is one that the device takes, for its type, its reduction and its groups.
class EverythingElse : public testing::TestWithParam<std::string> {};

const std::map<std::string, Op> kOpOf = {
    {"all-gather", Op::kAllGather},
    {"all-reduce", Op::kAllReduce},
    {"reduce-scatter", Op::kReduceScatter},
    {"all-to-all", Op::kAllToAll},
    {"collective-permute", Op::kCollectivePermute},
    {"collective-broadcast", Op::kCollectiveBroadcast},
    {"send", Op::kSend},
    {"recv", Op::kRecv},
};

// The kind of an instruction's reducer, by the opcode that it applies.
std::optional<ReduceKind> KindOf(const ReadModule& module, const ReadInstruction& instruction) {
  if (instruction.called.empty()) return std::nullopt;
  for (const ReadComputation& computation : module.computations) {
    if (computation.id != instruction.called[0]) continue;
    for (const ReduceKind kind : kAllReduceKinds) {
      if (ReducerOpcode(kind) == computation.instructions.back().opcode) return kind;
    }
  }
  return std::nullopt;
}

Groups GroupsOf(const ReadInstruction& instruction, int64_t world_size) {
  const WireReader device_list = instruction.proto.Sub(87);
  if (device_list.Has(2)) {
    const WireReader iota = device_list.Sub(2);
    const Dims dims = iota.Packed(3);
    Lists list(iota.Int(1), Dims(iota.Int(2)));
    for (int64_t at = 0; at < world_size; ++at) {
      // [groups, size] in a row, or its transpose.
      const int64_t group = at / iota.Int(2);
      const int64_t member = at % iota.Int(2);
      list[group][member] = dims.size() == 1 ? at : member * dims[1] + group;
    }
    Groups groups(list);
    EXPECT_TRUE(groups.Resolve("op", world_size).ok());
    return groups;
  }
  Lists list;
  for (const WireReader& group : device_list.Subs(1)) list.push_back(group.Packed(1));
  return Groups(list);
}

Choice ChoiceOf(const ReadModule& module, const ReadInstruction& instruction,
                const Target& target) {
  const Op op = kOpOf.at(instruction.opcode);
  // Of a tuple of results, the first.
  WireReader shape = instruction.proto.Sub(3);
  while (shape.Has(4)) shape = shape.Subs(4)[0];
  const auto type = hlo::ElementTypeFromNumber(shape.Int(2));
  Query query{op, target, *type, KindOf(module, instruction)};
  if (instruction.proto.Has(87)) {
    const Groups groups = GroupsOf(instruction, target.world_size);
    query.form = FormOf(groups, target);
    query.group_size = groups.Size(target.world_size);
  } else {
    Pairs pairs;
    for (const WireReader& pair : instruction.proto.Subs(52)) {
      pairs.push_back({pair.Int(1), pair.Int(2)});
    }
    query.form = FormOf(pairs);
  }
  return Choose(query);
}

TEST_P(EverythingElse, HasOnlyWhatTheTableAllows) {
  const Target target = TargetOf(GetParam());
  int instructions = 0;
  for (const Sample& sample : Samples(target.world_size)) {
    for (const ElementType type : kTypicalTypes) {
      for (const auto forced : {std::optional<Rule>(), std::optional<Rule>(Rule::kFallback)}) {
        const Result<Lowered> lowered =
            Lower(sample.collective, {{type, sample.dims}}, target, {}, forced);
        if (!lowered.ok()) continue;
        const ReadModule module(lowered.value().bytes);
        for (const ReadInstruction& instruction : module.Instructions()) {
          if (kOpOf.count(instruction.opcode) == 0) continue;
          ++instructions;
          const Choice choice = ChoiceOf(module, instruction, target);
          EXPECT_EQ(choice.rule, Rule::kNative) << sample.name << " of " << hlo::Name(type) << ": "
                                                << instruction.opcode << ", " << choice.why << "\n"
                                                << lowered.value().text;
        }
      }
    }
  }
  EXPECT_GT(instructions, 500);
}

// Where the device takes a call, the fallback's being there changes nothing.
TEST_P(EverythingElse, IsUntouchedWhereItIsNative) {
  const Target target = TargetOf(GetParam());
  int native = 0;
  for (const Sample& sample : Samples(target.world_size)) {
    for (const ElementType type : kTypicalTypes) {
      const std::vector<Shape> operands = {{type, sample.dims}};
      const Result<Lowered> lowered = Lower(sample.collective, operands, target);
      if (!lowered.ok() || lowered.value().rule != Rule::kNative) continue;
      ++native;
      const Result<Lowered> forced = Lower(sample.collective, operands, target, {}, Rule::kNative);
      ASSERT_TRUE(forced.ok());
      EXPECT_EQ(forced.value().bytes, lowered.value().bytes) << sample.name;
      EXPECT_EQ(forced.value().cost.wire_bytes, lowered.value().native_cost.wire_bytes);
    }
  }
  EXPECT_GT(native, 100);
}

INSTANTIATE_TEST_SUITE_P(Targets, EverythingElse,
                         testing::Values("cpu:4", "cpu:6", "pod:4", "pod:6", "tpu:v5e:2x4",
                                         "tpu:v4:2x2x2", "gpu:h100x8"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace xla_cc
