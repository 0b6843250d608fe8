// How the capability table is asked. What stands in it was measured, and is held against the
// compilers by tests/compilers/test_capabilities.py; here are only cells that no new measurement is
// likely to change.
#include "lowering/capability/capability.h"

#include "tests/lowering/testing.h"

namespace xla_cc {
namespace {

using hlo::ElementType;

constexpr ElementType kF32 = ElementType::kF32;

Rule RuleOf(Op op, const Target& target, ElementType type = kF32,
            std::optional<ReduceKind> reduce = std::nullopt, Form form = Form::kWorld) {
  return Choose({op, target, type, reduce, form, target.world_size}).rule;
}

TEST(Capability, WhatTheMainDevicesTake) {
  for (const Target& target : {Cpu4(), Pod4(), Tpu8(), Gpu8()}) {
    EXPECT_EQ(RuleOf(Op::kAllGather, target), Rule::kNative) << target.name;
    EXPECT_EQ(RuleOf(Op::kAllReduce, target, kF32, ReduceKind::kSum), Rule::kNative);
    // XLA:CPU has it between processes too, but there gloo does not wait for a late rank.
    const Rule scatters = target.kind == DeviceKind::kPod ? Rule::kFallback : Rule::kNative;
    EXPECT_EQ(RuleOf(Op::kReduceScatter, target, kF32, ReduceKind::kSum), scatters);
    const Rule moves = target.kind == DeviceKind::kCpu ? Rule::kFallback : Rule::kNative;
    EXPECT_EQ(RuleOf(Op::kAllToAll, target), moves) << target.name;
    EXPECT_EQ(RuleOf(Op::kCollectivePermute, target, kF32, {}, Form::kRing), moves);
    const Rule broadcasts = target.kind == DeviceKind::kGpu ? Rule::kNative : Rule::kFallback;
    EXPECT_EQ(RuleOf(Op::kCollectiveBroadcast, target), broadcasts) << target.name;
  }
}

TEST(Capability, UnknownKindsAreNative) {
  for (const char* name : {"neuron", "abacus:big"}) {
    const Target target = TargetOf(name, 8);
    for (const Op op : kAllOps) {
      // No compiler has an instruction for these, so no unknown one either.
      const bool none = op == Op::kUnevenAllGather || op == Op::kUnevenReduceScatter;
      for (const ElementType type : kAllTypes) {
        EXPECT_EQ(RuleOf(op, target, type, ReduceKind::kSum, Form::kUnequal),
                  none ? Rule::kFallback : Rule::kNative);
      }
    }
  }
}

TEST(Capability, UnknownGenerationsGetWhatAllOfTheirKindTake) {
  for (const char* name : {"tpu", "tpu:v99"}) {
    const Target target = TargetOf(name, 8);
    EXPECT_EQ(target.kind, DeviceKind::kTpu);
    for (const Op op : kAllOps) {
      for (const ElementType type : kAllTypes) {
        for (const Form form : {Form::kWorld, Form::kEqual, Form::kUnequal, Form::kScrambled}) {
          bool all = true;
          for (const char* generation : {"tpu:v4", "tpu:v5e", "tpu:v5p", "tpu:v6e"}) {
            const Target known = TargetOf(generation, 8);
            all = all && RuleOf(op, known, type, ReduceKind::kSum, form) == Rule::kNative;
          }
          const bool native = RuleOf(op, target, type, ReduceKind::kSum, form) == Rule::kNative;
          EXPECT_EQ(native, all) << Name(op) << " " << hlo::Name(type) << " " << Name(form);
        }
      }
    }
  }
}

TEST(Capability, AllToAllOverManyV5eChips) {
  const auto large = [](const char* name, int64_t world, Form form, int64_t group) {
    return Choose({Op::kAllToAll, TargetOf(name, world), kF32, std::nullopt, form, group}).rule;
  };
  EXPECT_EQ(large("tpu:v5e:8x8", 64, Form::kWorld, 64), Rule::kNative);
  EXPECT_EQ(large("tpu:v5e:8x16", 128, Form::kWorld, 128), Rule::kFallback);
  EXPECT_EQ(large("tpu:v5e:8x16", 128, Form::kEqual, 64), Rule::kNative);
  EXPECT_EQ(large("tpu:v5e:16x16", 256, Form::kWorld, 256), Rule::kFallback);
  EXPECT_EQ(large("tpu:v5e:16x16", 256, Form::kEqual, 16), Rule::kNative);
  EXPECT_EQ(large("tpu:v5e:16x32", 512, Form::kEqual, 256), Rule::kFallback)
      << "a group of 256 is as large as a world of 256";
  EXPECT_EQ(large("tpu:v6e:16x16", 256, Form::kWorld, 256), Rule::kNative);
}

TEST(Capability, TypesThatNoProgramTakesAreRefused) {
  for (const Op op : kAllOps) {
    EXPECT_EQ(RuleOf(op, Tpu8(), ElementType::kC128, ReduceKind::kSum), Rule::kRefused);
    EXPECT_NE(RuleOf(op, Cpu4(), ElementType::kC128, ReduceKind::kSum), Rule::kRefused);
  }
}

TEST(Capability, Lists) {
  const auto lists = [](Op op, const Target& target) {
    return Choose({op, target, kF32, ReduceKind::kSum, Form::kWorld, target.world_size}).lists;
  };
  EXPECT_TRUE(lists(Op::kAllGather, Cpu4()));
  EXPECT_FALSE(lists(Op::kAllReduce, Cpu4())) << "refused with a channel, which it needs there";
  EXPECT_FALSE(lists(Op::kReduceScatter, Tpu8())) << "the compiler crashes on it";
  EXPECT_TRUE(lists(Op::kReduceScatter, Gpu8()));
  EXPECT_FALSE(lists(Op::kAllToAll, Gpu8())) << "several operands would mean the tuple form";
}

class Registered {
 public:
  explicit Registered(const Registration& registration) : handle_(Register(registration)) {}
  ~Registered() { EXPECT_TRUE(Unregister(handle_)); }

 private:
  int64_t handle_;
};

TEST(Capability, ApplicationsOverride) {
  const Target neuron = TargetOf("neuron:trn2", 8);
  {
    const Registered off({"neuron", Op::kAllToAll, {}, {}, {}, false, "ours cannot"});
    EXPECT_EQ(RuleOf(Op::kAllToAll, neuron), Rule::kFallback);
    EXPECT_EQ(Choose({Op::kAllToAll, neuron, kF32, std::nullopt}).why, "ours cannot");
    EXPECT_EQ(RuleOf(Op::kAllGather, neuron), Rule::kNative);
    EXPECT_EQ(RuleOf(Op::kAllToAll, Tpu8()), Rule::kNative);
    const Registered on({"neuron:trn2", Op::kAllToAll, {kF32}, {}, {}, true, ""});
    EXPECT_EQ(RuleOf(Op::kAllToAll, neuron), Rule::kNative) << "the last one counts";
    EXPECT_EQ(RuleOf(Op::kAllToAll, neuron, ElementType::kS8), Rule::kFallback);
    EXPECT_EQ(RuleOf(Op::kAllToAll, TargetOf("neuron:inf2", 8)), Rule::kFallback);
  }
  EXPECT_EQ(RuleOf(Op::kAllToAll, neuron), Rule::kNative);
  const Registered max(
      {"tpu:v5e", Op::kAllReduce, {}, {ReduceKind::kMax}, {Form::kEqual}, false, "a bug"});
  EXPECT_EQ(RuleOf(Op::kAllReduce, Tpu8(), kF32, ReduceKind::kMax, Form::kEqual), Rule::kFallback);
  EXPECT_EQ(RuleOf(Op::kAllReduce, Tpu8(), kF32, ReduceKind::kMax), Rule::kNative);
  EXPECT_EQ(RuleOf(Op::kAllReduce, Tpu8(), kF32, ReduceKind::kSum, Form::kEqual), Rule::kNative);
}

TEST(Capability, UnregisteringTwice) {
  const int64_t handle = Register({"cpu", Op::kSend, {}, {}, {}, true, ""});
  EXPECT_TRUE(Unregister(handle));
  EXPECT_FALSE(Unregister(handle));
}

TEST(Forms, OfGroups) {
  EXPECT_EQ(FormOf(Groups(), 4), Form::kWorld);
  EXPECT_EQ(FormOf(Groups(Lists{{0, 1}, {2, 3}}), 4), Form::kEqual);
  EXPECT_EQ(FormOf(Groups(Lists{{0, 1, 2}, {3}}), 4), Form::kUnequal);
  EXPECT_EQ(FormOf(Groups(Lists{{0, 1}}), 4), Form::kPartial);
  EXPECT_EQ(FormOf(Groups(Lists{{1, 0}, {2, 3}}), 4), Form::kScrambled);
  EXPECT_EQ(FormOf(Groups(Lists{{1, 0, 2, 3}}), 4), Form::kScrambled);
  EXPECT_EQ(FormOf(Groups(Lists{{0, 2}, {1, 3}}), 4), Form::kEqual);
  EXPECT_EQ(FormOf(Groups(Lists{{0, 3}, {1, 2}}), 4), Form::kScrambled);
  EXPECT_EQ(FormOf(Groups(Lists{{1, 0}, {2}}), 4), Form::kPartial);
  EXPECT_EQ(FormOf(Groups(Lists{{1, 0}, {2}}), 3), Form::kUnequal);
}

TEST(Forms, OfGroupsOnATorus) {
  const Target torus = ParseTarget("tpu:v5e:4x4", 0).value();
  const Groups blocks(
      Lists{{0, 1, 4, 5}, {2, 3, 6, 7}, {8, 9, 12, 13}, {10, 11, 14, 15}});  // of 2x2 chips
  EXPECT_EQ(FormOf(blocks, torus), Form::kEqual);
  EXPECT_EQ(FormOf(blocks, torus.world_size), Form::kScrambled);
  Target elsewhere = torus;
  elsewhere.topology.chips = {0, 7, 2, 3, 4, 5, 6, 1, 8, 9, 10, 11, 12, 13, 14, 15};
  EXPECT_EQ(FormOf(blocks, elsewhere), Form::kScrambled);
  EXPECT_EQ(
      FormOf(Groups(Lists{{5, 4, 1, 0}, {2, 3, 6, 7}, {8, 9, 12, 13}, {10, 11, 14, 15}}), torus),
      Form::kScrambled);
  EXPECT_EQ(FormOf(Groups(), torus), Form::kWorld);
}

TEST(Forms, OfPairs) {
  EXPECT_EQ(FormOf(Pairs{}), Form::kChain);
  EXPECT_EQ(FormOf(Pairs{{0, 1}, {1, 2}}), Form::kChain);
  EXPECT_EQ(FormOf(Pairs{{0, 1}, {1, 0}}), Form::kRing);
  EXPECT_EQ(FormOf(Pairs{{2, 2}}), Form::kRing);
  EXPECT_EQ(FormOf(Pairs{{0, 1}, {2, 3}, {3, 4}, {4, 2}}), Form::kRing);
}

TEST(Forms, HaveNames) {
#define FORM(enumerator, name) EXPECT_EQ(FormFromName(Name(Form::enumerator)), Form::enumerator);
  XLA_CC_FORMS(FORM)
#undef FORM
  EXPECT_EQ(FormFromName("round"), std::nullopt);
}

}  // namespace
}  // namespace xla_cc
