#include "lowering/capability.h"

#include <cstdint>

namespace xla_cc {
namespace {

using hlo::ElementType;

// Sets of types and of reduce kinds, as bits.
constexpr uint32_t Bit(ElementType type) { return 1u << static_cast<int>(type); }
constexpr uint32_t Bit(ReduceKind kind) { return 1u << static_cast<int>(kind); }

constexpr uint32_t kAny = ~0u;
constexpr uint32_t kFloat8 = Bit(ElementType::kF8E5M2) | Bit(ElementType::kF8E4M3FN);
constexpr uint32_t kPred = Bit(ElementType::kPred);
constexpr uint32_t kS64 = Bit(ElementType::kS64);
constexpr uint32_t kU64 = Bit(ElementType::kU64);
constexpr uint32_t kC128 = Bit(ElementType::kC128);
constexpr uint32_t kWide = Bit(ElementType::kS64) | Bit(ElementType::kU64) |
                           Bit(ElementType::kF64) | Bit(ElementType::kC64) |
                           Bit(ElementType::kC128);
constexpr uint32_t kIntegers = Bit(ElementType::kS8) | Bit(ElementType::kS16) |
                               Bit(ElementType::kS32) | Bit(ElementType::kS64) |
                               Bit(ElementType::kU8) | Bit(ElementType::kU16) |
                               Bit(ElementType::kU32) | Bit(ElementType::kU64);
constexpr uint32_t kBitwise = Bit(ReduceKind::kAnd) | Bit(ReduceKind::kOr) | Bit(ReduceKind::kXor);
constexpr uint32_t kXor = Bit(ReduceKind::kXor);
constexpr uint32_t kOrdered =
    Bit(ReduceKind::kMin) | Bit(ReduceKind::kMax) | Bit(ReduceKind::kProduct);

enum class Form { kAny, kUnequalGroups, kCyclicPairs };

struct Row {
  DeviceKind kind;
  Op op;
  uint32_t types;
  uint32_t reduces;  // ignored for data movement
  Form form;
  Rule rule;
  const char* why;
};

// Only the exceptions. What stands here was compiled, and on CPU run, with the compilers that
// docs/capabilities.md names; tests/ hold it against them.
constexpr Row kTable[] = {
    {DeviceKind::kCpu, Op::kCollectivePermute, kAny, kAny, Form::kAny, Rule::kFallback,
     "ranks on threads compile a program each, and XLA:CPU takes no channel on it to meet by"},
    {DeviceKind::kCpu, Op::kAllToAll, kAny, kAny, Form::kAny, Rule::kFallback,
     "ranks on threads compile a program each, and XLA:CPU takes no channel on it to meet by"},
    {DeviceKind::kCpu, Op::kCollectiveBroadcast, kAny, kAny, Form::kAny, Rule::kFallback,
     "XLA:CPU does not implement it"},
    {DeviceKind::kCpu, Op::kSend, kAny, kAny, Form::kAny, Rule::kFallback,
     "XLA:CPU does not implement it"},
    {DeviceKind::kCpu, Op::kRecv, kAny, kAny, Form::kAny, Rule::kFallback,
     "XLA:CPU does not implement it"},
    {DeviceKind::kCpu, Op::kAllReduce, kFloat8, kAny, Form::kAny, Rule::kFallback,
     "XLA:CPU does not reduce 8 bit floats"},
    {DeviceKind::kCpu, Op::kReduceScatter, kFloat8, kAny, Form::kAny, Rule::kFallback,
     "XLA:CPU does not reduce 8 bit floats"},
    {DeviceKind::kCpu, Op::kAllReduce, kIntegers, kBitwise, Form::kUnequalGroups, Rule::kRefused,
     "XLA:CPU has no bitwise reduction of integers, and groups of unequal size cannot be gathered"},
    {DeviceKind::kCpu, Op::kAllReduce, kPred, kXor, Form::kUnequalGroups, Rule::kRefused,
     "XLA:CPU has no xor reduction, and groups of unequal size cannot be gathered"},
    {DeviceKind::kCpu, Op::kAllReduce, kIntegers, kBitwise, Form::kAny, Rule::kFallback,
     "XLA:CPU has no bitwise reduction of integers"},
    {DeviceKind::kCpu, Op::kReduceScatter, kIntegers, kBitwise, Form::kAny, Rule::kFallback,
     "XLA:CPU has no bitwise reduction of integers"},
    {DeviceKind::kCpu, Op::kAllReduce, kPred, kXor, Form::kAny, Rule::kFallback,
     "XLA:CPU has no xor reduction"},
    {DeviceKind::kCpu, Op::kReduceScatter, kPred, kXor, Form::kAny, Rule::kFallback,
     "XLA:CPU has no xor reduction"},

    {DeviceKind::kTpu, Op::kAllGather, kC128, kAny, Form::kAny, Rule::kRefused,
     "the TPU compiler does not take c128"},
    {DeviceKind::kTpu, Op::kAllReduce, kC128, kAny, Form::kAny, Rule::kRefused,
     "the TPU compiler does not take c128"},
    {DeviceKind::kTpu, Op::kReduceScatter, kC128, kAny, Form::kAny, Rule::kRefused,
     "the TPU compiler does not take c128"},
    {DeviceKind::kTpu, Op::kCollectivePermute, kC128, kAny, Form::kAny, Rule::kRefused,
     "the TPU compiler does not take c128"},
    {DeviceKind::kTpu, Op::kAllToAll, kC128, kAny, Form::kAny, Rule::kRefused,
     "the TPU compiler does not take c128"},
    {DeviceKind::kTpu, Op::kCollectiveBroadcast, kC128, kAny, Form::kAny, Rule::kRefused,
     "the TPU compiler does not take c128"},
    {DeviceKind::kTpu, Op::kCollectiveBroadcast, kAny, kAny, Form::kAny, Rule::kFallback,
     "the TPU compiler does not implement it"},
    {DeviceKind::kTpu, Op::kSend, kAny, kAny, Form::kAny, Rule::kFallback,
     "the TPU compiler takes no send between replicas"},
    {DeviceKind::kTpu, Op::kRecv, kAny, kAny, Form::kAny, Rule::kFallback,
     "the TPU compiler takes no recv between replicas"},
    {DeviceKind::kTpu, Op::kAllReduce, kAny, kAny, Form::kUnequalGroups, Rule::kRefused,
     "the TPU compiler refuses groups of unequal size"},
    {DeviceKind::kTpu, Op::kAllReduce, kS64, kBitwise, Form::kAny, Rule::kRefused,
     "the TPU compiler splits wide types in halves, and refuses and, or, xor of them"},
    {DeviceKind::kTpu, Op::kAllReduce, kU64, kAny, Form::kAny, Rule::kRefused,
     "the TPU compiler refuses reductions of u64"},
    {DeviceKind::kTpu, Op::kAllReduce, kWide, kOrdered, Form::kAny, Rule::kRefused,
     "the TPU compiler splits wide types in halves, and only a sum survives that"},
    {DeviceKind::kTpu, Op::kReduceScatter, kWide, kAny, Form::kAny, Rule::kFallback,
     "the TPU compiler refuses a reduce-scatter of a wide type"},

    {DeviceKind::kGpu, Op::kSend, kAny, kAny, Form::kCyclicPairs, Rule::kFallback,
     "the GPU compiler takes no send around a circle"},
    {DeviceKind::kGpu, Op::kRecv, kAny, kAny, Form::kCyclicPairs, Rule::kFallback,
     "the GPU compiler takes no recv around a circle"},
    {DeviceKind::kGpu, Op::kCollectiveBroadcast, kAny, kAny, Form::kUnequalGroups, Rule::kFallback,
     "the GPU compiler refuses groups of unequal size"},
    {DeviceKind::kGpu, Op::kAllReduce, kFloat8, kAny, Form::kAny, Rule::kFallback,
     "the GPU compiler does not reduce 8 bit floats"},
    {DeviceKind::kGpu, Op::kReduceScatter, kFloat8, kAny, Form::kAny, Rule::kFallback,
     "the GPU compiler does not reduce 8 bit floats"},
    {DeviceKind::kGpu, Op::kAllReduce, kIntegers, kBitwise, Form::kUnequalGroups, Rule::kRefused,
     "the GPU compiler crashes on bitwise reductions, and unequal groups cannot be gathered"},
    {DeviceKind::kGpu, Op::kAllReduce, kIntegers, kBitwise, Form::kAny, Rule::kFallback,
     "the GPU compiler crashes on bitwise reductions of integers"},
    {DeviceKind::kGpu, Op::kReduceScatter, kIntegers, kBitwise, Form::kAny, Rule::kFallback,
     "the GPU compiler crashes on bitwise reductions of integers"},
};

// Instructions that take one operand only, by what was seen.
struct SingleOperand {
  DeviceKind kind;
  Op op;
};
constexpr SingleOperand kSingleOperand[] = {
    {DeviceKind::kCpu, Op::kAllReduce},      // refused with a channel, which it needs there
    {DeviceKind::kTpu, Op::kReduceScatter},  // the compiler crashes
};

// Only these three have a form with several operands that means the same as one instruction each.
bool HasListForm(Op op) {
  return op == Op::kAllGather || op == Op::kAllReduce || op == Op::kReduceScatter;
}

bool Lists(const Query& query) {
  if (!HasListForm(query.op)) return false;
  for (const SingleOperand& single : kSingleOperand) {
    if (single.kind == query.kind && single.op == query.op) return false;
  }
  return true;
}

bool Matches(Form form, const Query& query) {
  switch (form) {
    case Form::kUnequalGroups:
      return !query.uniform_groups;
    case Form::kCyclicPairs:
      return query.cyclic_pairs;
    case Form::kAny:
      break;
  }
  return true;
}

}  // namespace

Choice Choose(const Query& query) {
  for (const Row& row : kTable) {
    if (row.kind == query.kind && row.op == query.op && (row.types & Bit(query.type)) != 0 &&
        (!query.reduce.has_value() || (row.reduces & Bit(*query.reduce)) != 0) &&
        Matches(row.form, query)) {
      return {row.rule, /*lists=*/false, row.why};
    }
  }
  return {Rule::kNative, Lists(query), ""};
}

std::string Name(Rule rule) {
  switch (rule) {
    case Rule::kNative:
      return "native";
    case Rule::kFallback:
      return "fallback";
    case Rule::kRefused:
      return "refused";
  }
  return "invalid";
}

}  // namespace xla_cc
