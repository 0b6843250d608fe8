// Whatever a call says, it is refused, or it becomes a module that can be read, the same each time:
// no crash, no overflow, no memory without end. (Built with sanitizers: .bazelrc.)
#include <map>
#include <set>

#include "tests/lowering/random_calls.h"
#include "tests/lowering/wire_reader.h"

// A lowering that asks for more has lost its way.
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=256:hard_rss_limit_mb=2048";
}

namespace xla_cc {
namespace {

using hlo::Shape;

Target RandomTarget(Dice& dice) {
  static const std::vector<std::string> kinds = {"cpu",     "tpu",          "tpu:v5e",
                                                 "tpu:v5p", "gpu:h100",     "neuron",
                                                 "other",   "spmd:tpu:v5e", "spmd:cpu"};
  static const std::vector<std::string> whole = {"tpu:v5e:2x4",  "tpu:v5e:4x4",
                                                 "tpu:v4:2x2x2", "tpu:v5p:2x2x4",
                                                 "gpu:h100x8",   "spmd:tpu:v5e:2x2"};
  if (dice.OneIn(2)) return TargetOf(dice.Of(whole));
  return TargetOf(dice.Of(kinds), dice.OneIn(20) ? 100 : 1 + dice.Below(9));
}

void ExpectShape(const Shape& shape) {
  double elements = 1;
  for (int64_t dim : shape.dims) {
    EXPECT_GE(dim, 0) << shape.ToString();
    elements *= static_cast<double>(dim);
  }
  EXPECT_LT(elements, 9.2e18) << shape.ToString();
}

// Each instruction is of ones before it, and calls computations before its own.
void ExpectModule(const std::string& bytes) {
  std::set<int64_t> computations;
  std::set<int64_t> instructions;
  for (const ReadComputation& computation : ReadModule(bytes).computations) {
    for (const ReadInstruction& instruction : computation.instructions) {
      for (int64_t id : instruction.operands) EXPECT_EQ(instructions.count(id), 1u);
      for (int64_t id : instruction.called) EXPECT_EQ(computations.count(id), 1u);
      for (int64_t dim : instruction.dims) EXPECT_GE(dim, 0) << instruction.name;
      EXPECT_TRUE(instructions.insert(instruction.id).second) << instruction.name;
    }
    EXPECT_EQ(instructions.count(computation.root_id), 1u);
    EXPECT_TRUE(computations.insert(computation.id).second);
  }
}

void ExpectRefusal(const std::string& message, const std::string& op) {
  EXPECT_EQ(message.find(op + ": "), 0u) << message;
  EXPECT_NE(message.find(", but it must be "), std::string::npos) << message;
  EXPECT_LT(message.size(), 4000u) << message;
}

TEST(RandomCalls, AreRefusedOrBecomeModules) {
  std::map<Op, int> lowered_of;
  int refused = 0;
  int lowered = 0;
  for (const uint64_t seed : Dice::Seeds(1500)) {
    Dice dice(seed);
    const int64_t wild = dice.OneIn(2) ? 4 : 60;  // calls of which all is wrong, or nearly nothing
    const Target target = RandomTarget(dice);
    const Collective call = RandomCollective(dice, target.world_size, wild);
    const auto operands = RandomOperands(dice, call, target.world_size, wild);
    std::optional<Rule> forced;
    if (dice.OneIn(5)) forced = dice.OneIn(2) ? Rule::kNative : Rule::kFallback;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + ToString(call) + " of " +
                 ToString(operands) + " on " + target.ToString());

    const Result<Lowered> one = Lower(call, operands, target, {}, forced);
    const Result<Lowered> again = Lower(call, operands, target, {}, forced);
    const Result<std::vector<Shape>> shapes = ResultShapes(call, operands, target);
    ASSERT_EQ(one.ok(), again.ok());
    if (!one.ok()) {
      ++refused;
      ExpectRefusal(one.status().message(), Name(OpFor(call)));
      EXPECT_EQ(one.status().message(), again.status().message());
      const bool by_device = one.status().message().find("(C1)") != std::string::npos;
      EXPECT_EQ(shapes.ok(), by_device) << one.status().message();
    } else {
      ++lowered;
      ++lowered_of[OpFor(call)];
      const Lowered& made = one.value();
      ASSERT_TRUE(shapes.ok()) << shapes.status().message();
      EXPECT_EQ(made.results, shapes.value());
      ASSERT_EQ(made.results.size(), operands.size());
      for (const Shape& shape : made.results) ExpectShape(shape);
      EXPECT_EQ(made.bytes.empty(), made.live.empty());
      EXPECT_EQ(made.bytes, again.value().bytes);
      EXPECT_GE(made.cost.wire_bytes, 0);
      EXPECT_GE(made.cost.memory_bytes, 0);
      ExpectModule(made.bytes);
      // Said once more, in the form that it has brought the call into. A root becomes a position.
      if (OpFor(call) == Op::kCollectiveBroadcast) continue;
      const Result<Lowered> canonical = Lower(made.collective, operands, target, {}, forced);
      ASSERT_TRUE(canonical.ok()) << canonical.status().message();
      EXPECT_EQ(made.bytes, canonical.value().bytes);
      EXPECT_EQ(made.identity, canonical.value().identity);
    }
    if (HasFailure()) return;
  }
  // Else this looks at nothing.
  EXPECT_GT(10 * refused, lowered + refused);
  EXPECT_GT(10 * lowered, lowered + refused);
  for (Op op : kAllOps) EXPECT_GT(lowered_of[op], 0) << Name(op);
  std::printf("%d lowered, %d refused\n", lowered, refused);
}

TEST(RandomTargets, AreRefusedOrHaveRanks) {
  int parsed = 0;
  for (const uint64_t seed : Dice::Seeds(3000)) {
    Dice dice(seed);
    static const std::vector<std::string> words = {
        "tpu", "cpu", "gpu", "spmd", "v5e", "h100x8", "2x4", "4x4x4", "99999999x9", "x", ""};
    std::string name = dice.Text("tpucgv:x0123456789-", 12);
    if (dice.OneIn(2)) name = dice.Of(words) + ":" + dice.Of(words) + ":" + dice.Of(words);
    const int64_t world_size = dice.OneIn(2) ? 0 : dice.OneIn(2) ? dice.Of(kEdges) : dice.Below(9);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": '" + name + "'");
    const Result<Target> target = ParseTarget(name, world_size);
    if (!target.ok()) {
      ExpectRefusal(target.status().message(), "target");
      continue;
    }
    ++parsed;
    EXPECT_GE(target.value().world_size, 1);
    EXPECT_TRUE(world_size == 0 || target.value().world_size == world_size);
    const Topology& topology = target.value().topology;
    EXPECT_TRUE(!topology.known() || topology.Chips() == target.value().world_size);
  }
  EXPECT_GT(parsed, 100);
}

}  // namespace
}  // namespace xla_cc
