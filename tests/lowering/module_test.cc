// Every module that we emit keeps the rules of torch_xla's import, which dies of some of them, and
// the rules of each device about channels.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "tests/lowering/testing.h"
#include "tests/lowering/wire_reader.h"

namespace xla_cc {
namespace {

using hlo::ElementType;
using hlo::Shape;

void ExpectWellFormed(const ReadModule& module) {
  EXPECT_NE(module.name.find('.'), std::string::npos) << module.name;
  std::set<int64_t> ids;
  std::set<std::string> names;
  std::set<int64_t> computations;
  for (const ReadComputation& computation : module.computations) {
    std::map<int64_t, const ReadInstruction*> here;
    int64_t parameters = 0;
    for (const ReadInstruction& instruction : computation.instructions) {
      const std::string& name = instruction.name;
      EXPECT_EQ(name, instruction.opcode + "." + std::to_string(instruction.id));
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_GT(instruction.id, 0) << name;
      EXPECT_TRUE(ids.insert(instruction.id).second) << name;
      EXPECT_TRUE(instruction.proto.Has(3)) << name << " has no shape";
      for (const int64_t operand : instruction.operands) {
        EXPECT_EQ(here.count(operand), 1u) << name << " uses what does not precede it";
      }
      for (const int64_t callee : instruction.called) {
        EXPECT_EQ(computations.count(callee), 1u) << name << " calls what does not precede it";
      }
      if (instruction.opcode == "parameter") {
        EXPECT_EQ(instruction.proto.Int(9), parameters++) << name;
      }
      here[instruction.id] = &instruction;
    }
    EXPECT_TRUE(names.insert(computation.name).second) << computation.name;
    EXPECT_EQ(computation.name.substr(computation.name.rfind('.')),
              "." + std::to_string(computation.id));
    EXPECT_TRUE(ids.insert(computation.id).second) << computation.name;
    const WireReader program(computation.program_shape);
    EXPECT_EQ(static_cast<int64_t>(program.Subs(1).size()), parameters) << computation.name;
    EXPECT_EQ(static_cast<int64_t>(program.All(3).size()), parameters) << computation.name;
    ASSERT_EQ(here.count(computation.root_id), 1u) << computation.name;
    EXPECT_EQ(here[computation.root_id]->proto.Bytes(3), program.Bytes(2)) << computation.name;
    computations.insert(computation.id);
  }
  ASSERT_FALSE(module.computations.empty());
  const ReadComputation& entry = module.computations.back();
  EXPECT_EQ(module.entry_id, entry.id);
  EXPECT_EQ(module.entry_name, entry.name);
  EXPECT_EQ(module.entry_shape, entry.program_shape);
}

// Arrays and tokens of a tuple, however deep; none of what is no tuple.
size_t Leaves(const WireReader& shape) {
  size_t leaves = 0;
  for (const WireReader& element : shape.Subs(4)) leaves += std::max<size_t>(Leaves(element), 1);
  return leaves;
}

// Collectives that XLA:CPU lets meet by channel across separately compiled programs.
bool MeetsByChannel(const std::string& opcode) {
  return opcode == "all-gather" || opcode == "all-reduce" || opcode == "reduce-scatter";
}

bool IsTransfer(const std::string& opcode) {
  return opcode.compare(0, 4, "send") == 0 || opcode.compare(0, 4, "recv") == 0;
}

void ExpectChannels(const ReadModule& module, const Target& target) {
  for (const ReadInstruction& instruction : module.Instructions()) {
    const std::string& opcode = instruction.opcode;
    const bool meets = MeetsByChannel(opcode);
    EXPECT_FALSE(instruction.pinned_layout) << opcode;
    if (target.partitioned) {
      // Without a channel, XLA would take the numbers in groups and pairs for those of replicas.
      const bool collective = meets || instruction.proto.Has(87) || opcode == "collective-permute";
      EXPECT_EQ(instruction.channel != 0, collective || IsTransfer(opcode)) << opcode;
      EXPECT_EQ(instruction.global_ids, meets) << opcode;
      EXPECT_NE(opcode, "replica-id");
      EXPECT_NE(opcode, "call");
    } else if (target.kind == DeviceKind::kCpu) {
      // A channel that XLA:CPU would take for a partition's, or opcodes that it has not.
      EXPECT_TRUE(meets || !instruction.proto.Has(87)) << opcode;
      EXPECT_FALSE(opcode == "collective-permute" || IsTransfer(opcode)) << opcode;
      EXPECT_EQ(instruction.channel != 0, meets) << opcode;
      EXPECT_EQ(instruction.global_ids, meets) << opcode;
      EXPECT_GE(instruction.channel, 0) << opcode;
      EXPECT_LE(instruction.channel, INT32_MAX) << opcode;
    } else {
      EXPECT_EQ(instruction.channel != 0, IsTransfer(opcode)) << opcode;
      EXPECT_FALSE(instruction.global_ids) << opcode;
      EXPECT_TRUE(opcode != "call" || target.CallsTakeTokens());
    }
  }
}

// XLA partitions what does not say that it is sharded by hand. Functions of scalars say nothing.
void ExpectShardings(const ReadModule& module, const Target& target) {
  constexpr int64_t kTuple = 2;
  constexpr int64_t kManual = 4;
  for (const ReadComputation& computation : module.computations) {
    const bool manual = target.partitioned && &computation == &module.computations.back();
    for (const ReadInstruction& instruction : computation.instructions) {
      ASSERT_EQ(instruction.proto.Has(40), manual) << instruction.name;
      if (!manual) continue;
      const WireReader sharding = instruction.proto.Sub(40);
      const size_t elements = Leaves(instruction.proto.Sub(3));
      EXPECT_EQ(sharding.Int(1), elements == 0 ? kManual : kTuple) << instruction.name;
      const auto parts = sharding.Subs(5);
      EXPECT_EQ(parts.size(), elements) << instruction.name;
      for (const WireReader& part : parts) EXPECT_EQ(part.Int(1), kManual);
    }
  }
}

// On CPU threads collectives stand in calls, and a token goes in a chain through all of them.
void ExpectChain(const ReadModule& module) {
  const ReadComputation& entry = module.computations.back();
  std::map<int64_t, const ReadInstruction*> by_id;
  // Where a value comes from: its call, if it was taken out of one.
  const auto source = [&](int64_t id) {
    const ReadInstruction& instruction = *by_id.at(id);
    return instruction.opcode == "get-tuple-element" ? instruction.operands.at(0) : id;
  };
  int64_t token = 0;
  for (const ReadInstruction& instruction : entry.instructions) {
    by_id[instruction.id] = &instruction;
    EXPECT_FALSE(MeetsByChannel(instruction.opcode)) << "stands outside a call";
    if (instruction.opcode == "parameter") token = instruction.id;  // the last of them
    if (instruction.opcode != "call") continue;
    const WireReader attribute = instruction.proto.Sub(68).Sub(1);
    EXPECT_EQ(attribute.Bytes(1) + "=" + attribute.Bytes(2), "inlineable=false");
    EXPECT_EQ(source(instruction.operands.back()), token) << instruction.name;
    token = instruction.id;
  }
  const ReadInstruction& root = *by_id.at(entry.root_id);
  ASSERT_EQ(root.opcode, "tuple");
  EXPECT_EQ(source(root.operands.back()), token);
}

class Modules : public testing::TestWithParam<std::string> {};

TEST_P(Modules, KeepTheRules) {
  const Target target = TargetOf(GetParam());
  for (const Sample& sample : Samples(target.world_size)) {
    for (const ElementType type : kTypicalTypes) {
      SCOPED_TRACE(sample.name + " of " + std::string(hlo::Name(type)));
      const std::vector<Shape> operands = {{type, sample.dims}, {type, sample.dims}};
      const Result<Lowered> lowered = Lower(sample.collective, operands, target);
      if (!lowered.ok()) {
        // What a type or a device has not; anything else would be a sample gone wrong.
        const std::string& message = lowered.status().message();
        EXPECT_TRUE(message.find("(R") != std::string::npos ||
                    message.find("(C1)") != std::string::npos)
            << message;
        continue;
      }
      const ReadModule module(lowered.value().bytes);
      ExpectWellFormed(module);
      ExpectChannels(module, target);
      ExpectShardings(module, target);
      if (target.CallsTakeTokens()) ExpectChain(module);
      EXPECT_EQ(lowered.value().takes_token, target.CallsTakeTokens());
      if (testing::Test::HasFailure()) FAIL() << lowered.value().text;
    }
  }
}

// The text shows the same instructions as the bytes, in the same order.
TEST_P(Modules, TextAndBytesAgree) {
  const Target target = TargetOf(GetParam());
  for (const Sample& sample : Samples(target.world_size)) {
    const Shape operand{ElementType::kF32, sample.dims};
    const Result<Lowered> lowered = Lower(sample.collective, {operand}, target);
    if (!lowered.ok()) continue;
    std::string names;
    for (const ReadComputation& computation : ReadModule(lowered.value().bytes).computations) {
      for (const ReadInstruction& instruction : computation.instructions) {
        names += instruction.name + " ";
      }
      names += computation.name + " ";
    }
    std::string text_names, line, title;
    std::istringstream text(lowered.value().text);
    while (std::getline(text, line)) {
      if (line[0] == '%') title = line.substr(1, line.find(' '));
      if (line.compare(0, 3, "  %") == 0) text_names += line.substr(3, line.find(' ', 3) - 2);
      if (line == "}") text_names += title;
    }
    EXPECT_EQ(text_names, names) << lowered.value().text;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Modules,
                         testing::Values("cpu:4", "cpu:1", "pod:4", "tpu:v5e:2x4", "gpu:h100x8",
                                         "neuron:trn:8", "other:8", "spmd:cpu:4",
                                         "spmd:tpu:v5e:2x2", "spmd:gpu:h100x8"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace xla_cc
