// The capability table: what was measured with the real compilers, written down a second time.
#include "lowering/capability.h"

#include "tests/lowering/testing.h"

namespace xla_cc {
namespace {

using hlo::ElementType;

constexpr Rule kNative = Rule::kNative;
constexpr Rule kFallback = Rule::kFallback;
constexpr Rule kRefused = Rule::kRefused;

// Data movement by device: it depends on the element type only where TPUs lack c128 altogether.
struct Movement {
  DeviceKind kind;
  Op op;
  Rule equal_groups;
  Rule unequal_groups;
};

TEST(Capability, DataMovement) {
  const Movement expected[] = {
      {DeviceKind::kCpu, Op::kAllGather, kNative, kNative},
      {DeviceKind::kCpu, Op::kCollectivePermute, kFallback, kFallback},
      {DeviceKind::kCpu, Op::kAllToAll, kFallback, kFallback},
      {DeviceKind::kCpu, Op::kCollectiveBroadcast, kFallback, kFallback},
      {DeviceKind::kCpu, Op::kSend, kFallback, kFallback},
      {DeviceKind::kCpu, Op::kRecv, kFallback, kFallback},
      {DeviceKind::kTpu, Op::kAllGather, kNative, kNative},
      {DeviceKind::kTpu, Op::kCollectivePermute, kNative, kNative},
      {DeviceKind::kTpu, Op::kAllToAll, kNative, kNative},
      {DeviceKind::kTpu, Op::kCollectiveBroadcast, kFallback, kFallback},
      {DeviceKind::kTpu, Op::kSend, kFallback, kFallback},
      {DeviceKind::kTpu, Op::kRecv, kFallback, kFallback},
      {DeviceKind::kGpu, Op::kAllGather, kNative, kNative},
      {DeviceKind::kGpu, Op::kCollectivePermute, kNative, kNative},
      {DeviceKind::kGpu, Op::kAllToAll, kNative, kNative},
      {DeviceKind::kGpu, Op::kCollectiveBroadcast, kNative, kFallback},
      {DeviceKind::kGpu, Op::kSend, kNative, kNative},
      {DeviceKind::kGpu, Op::kRecv, kNative, kNative},
  };
  for (const Movement& row : expected) {
    for (const ElementType type : kAllTypes) {
      const bool transfer = row.op == Op::kSend || row.op == Op::kRecv;
      if (row.kind == DeviceKind::kTpu && type == ElementType::kC128 && !transfer) {
        EXPECT_EQ(Choose({row.op, row.kind, type, {}, true}).rule, kRefused);
        continue;
      }
      const std::string where = Name(row.op) + " on " + std::to_string(static_cast<int>(row.kind));
      EXPECT_EQ(Choose({row.op, row.kind, type, {}, true}).rule, row.equal_groups) << where;
      if (row.op == Op::kCollectiveBroadcast) {  // the others refuse unequal groups (G2)
        EXPECT_EQ(Choose({row.op, row.kind, type, {}, false}).rule, row.unequal_groups) << where;
      }
    }
  }
}

bool IsWide(ElementType type) {
  return hlo::Bits(type) >= 64;  // what TPUs split in halves
}

bool IsBitwise(ReduceKind kind) {
  return kind == ReduceKind::kAnd || kind == ReduceKind::kOr || kind == ReduceKind::kXor;
}

bool IsOrdered(ReduceKind kind) {
  return kind == ReduceKind::kMin || kind == ReduceKind::kMax || kind == ReduceKind::kProduct;
}

// Reductions by device, as rules about types and kinds.
Rule Expected(DeviceKind device, Op op, ElementType type, ReduceKind kind, bool equal_groups) {
  switch (device) {
    case DeviceKind::kCpu:
      if (hlo::IsFloat8(type) || (hlo::IsIntegral(type) && IsBitwise(kind))) return kFallback;
      return type == ElementType::kPred && kind == ReduceKind::kXor ? kFallback : kNative;
    case DeviceKind::kTpu:
      if (type == ElementType::kC128) return kRefused;
      if (op == Op::kReduceScatter) return IsWide(type) ? kFallback : kNative;
      if (!equal_groups || type == ElementType::kU64) return kRefused;
      if (type == ElementType::kS64 && IsBitwise(kind)) return kRefused;
      return IsWide(type) && IsOrdered(kind) ? kRefused : kNative;
    case DeviceKind::kGpu:
      return hlo::IsFloat8(type) || (hlo::IsIntegral(type) && IsBitwise(kind)) ? kFallback
                                                                               : kNative;
    default:
      return kNative;
  }
}

class Devices : public testing::TestWithParam<DeviceKind> {};

TEST_P(Devices, Reductions) {
  const DeviceKind device = GetParam();
  for (const Op op : {Op::kAllReduce, Op::kReduceScatter}) {
    for (const ElementType type : kAllTypes) {
      for (const ReduceKind kind : kAllReduceKinds) {
        for (const bool equal_groups : {true, false}) {
          if (!equal_groups && op == Op::kReduceScatter) continue;  // refused (G2)
          const Reduction reduction{kind};
          if (!reduction.Verify("op", {type, {}}).ok()) continue;  // R1 to R3
          const Query query{op, device, type, reduction.InstructionKind(), equal_groups};
          const Rule expected =
              Expected(device, op, type, reduction.InstructionKind(), equal_groups);
          // Unequal groups leave nothing to decompose a bitwise reduction into.
          if (!equal_groups && expected == kFallback && IsBitwise(kind)) continue;
          EXPECT_EQ(Choose(query).rule, expected)
              << Name(op) << " " << Name(kind) << " of " << hlo::Name(type)
              << (equal_groups ? "" : " in unequal groups");
        }
      }
    }
  }
}

TEST_P(Devices, AllButNativeSaysWhy) {
  for (const Op op : kAllOps) {
    for (const ElementType type : kAllTypes) {
      for (const bool equal_groups : {true, false}) {
        const Choice choice = Choose({op, GetParam(), type, ReduceKind::kSum, equal_groups});
        EXPECT_EQ(choice.rule == kNative, choice.why.empty()) << Name(op);
        // A decomposition takes one operand.
        EXPECT_FALSE(choice.rule != kNative && choice.lists) << Name(op);
      }
    }
  }
}

TEST_P(Devices, Lists) {
  for (const Op op : kAllOps) {
    const bool variadic = op == Op::kAllGather || op == Op::kAllReduce || op == Op::kReduceScatter;
    const bool broken = (GetParam() == DeviceKind::kCpu && op == Op::kAllReduce) ||
                        (GetParam() == DeviceKind::kTpu && op == Op::kReduceScatter);
    const Choice choice = Choose({op, GetParam(), ElementType::kF32, ReduceKind::kSum, true});
    EXPECT_EQ(choice.lists, variadic && !broken) << Name(op);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Devices,
                         testing::Values(DeviceKind::kCpu, DeviceKind::kTpu, DeviceKind::kGpu,
                                         DeviceKind::kNeuron, DeviceKind::kOther),
                         [](const auto& info) {
                           return std::to_string(static_cast<int>(info.param));
                         });

TEST(Capability, UnknownDevicesAreNative) {
  for (const Op op : kAllOps) {
    for (const ElementType type : kAllTypes) {
      for (const ReduceKind kind : kAllReduceKinds) {
        for (const DeviceKind device : {DeviceKind::kNeuron, DeviceKind::kOther}) {
          EXPECT_EQ(Choose({op, device, type, kind, true}).rule, kNative);
        }
      }
    }
  }
}

TEST(Capability, RuleNames) {
  EXPECT_EQ(Name(kNative), "native");
  EXPECT_EQ(Name(kFallback), "fallback");
  EXPECT_EQ(Name(kRefused), "refused");
}

}  // namespace
}  // namespace xla_cc
