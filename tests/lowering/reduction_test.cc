// The reduce kinds: names, instructions, and which types have which kind.
#include "lowering/model/reduction.h"

#include <cmath>

#include "lowering/hlo/rounded.h"
#include "tests/lowering/testing.h"
#include "tests/lowering/wire_reader.h"

namespace xla_cc {
namespace {

using hlo::ElementType;
using hlo::TypeClass;

struct Kind {
  ReduceKind kind;
  const char* name;
  const char* opcode;
  ReduceKind instruction;
};

const Kind kKinds[] = {
    {ReduceKind::kSum, "sum", "add", ReduceKind::kSum},
    {ReduceKind::kProduct, "product", "multiply", ReduceKind::kProduct},
    {ReduceKind::kMin, "min", "minimum", ReduceKind::kMin},
    {ReduceKind::kMax, "max", "maximum", ReduceKind::kMax},
    {ReduceKind::kAnd, "and", "and", ReduceKind::kAnd},
    {ReduceKind::kOr, "or", "or", ReduceKind::kOr},
    {ReduceKind::kXor, "xor", "xor", ReduceKind::kXor},
    {ReduceKind::kAverage, "average", "add", ReduceKind::kSum},
    {ReduceKind::kPremultipliedSum, "premultiplied_sum", "add", ReduceKind::kSum},
};

class Kinds : public testing::TestWithParam<Kind> {};

TEST_P(Kinds, NamesAndInstructions) {
  const Kind& expected = GetParam();
  EXPECT_EQ(Name(expected.kind), expected.name);
  EXPECT_EQ(ReduceKindFromName(expected.name), expected.kind);
  EXPECT_EQ(ReducerOpcode(expected.kind), expected.opcode);
  EXPECT_EQ(Reduction{expected.kind}.InstructionKind(), expected.instruction);
}

bool HasKind(TypeClass type, ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kAnd:
    case ReduceKind::kOr:
    case ReduceKind::kXor:
      return type == TypeClass::kBool || type == TypeClass::kSigned || type == TypeClass::kUnsigned;
    case ReduceKind::kMin:
    case ReduceKind::kMax:
      return type != TypeClass::kComplex;
    case ReduceKind::kAverage:
      return type != TypeClass::kBool;
    default:
      return true;
  }
}

TEST_P(Kinds, Types) {
  for (const ElementType type : kAllTypes) {
    EXPECT_EQ(Reduction{GetParam().kind}.Verify("op", {type, {4}}).ok(),
              HasKind(hlo::Class(type), GetParam().kind))
        << hlo::Name(type);
  }
}

// Scales of integers are whole numbers of 32 bits, as the constants that we write.
TEST_P(Kinds, Scales) {
  const bool premultiplied = GetParam().kind == ReduceKind::kPremultipliedSum;
  for (const ElementType type : kAllTypes) {
    const hlo::Shape shape{type, {4}};
    if (!Reduction{GetParam().kind}.Verify("op", shape).ok()) continue;
    const bool truth = type == ElementType::kPred;
    const bool small = type == ElementType::kF16 || hlo::IsFloat8(type);
    const bool whole = truth || hlo::IsIntegral(type);
    const auto takes = [&](double scale, double factor) {
      return Reduction{GetParam().kind, scale, factor}.Verify("op", shape).ok();
    };
    EXPECT_TRUE(takes(1, 1));
    EXPECT_EQ(takes(0.5, 1), !whole) << hlo::Name(type);
    EXPECT_EQ(takes(-3, 1), !truth) << hlo::Name(type);
    EXPECT_EQ(takes(2147483647, 1), !truth && !small) << hlo::Name(type);
    EXPECT_EQ(takes(2147483648, 1), !whole && !small) << hlo::Name(type);
    EXPECT_EQ(takes(1, 3), premultiplied && !truth) << hlo::Name(type);
    EXPECT_EQ(takes(1, 0.5), premultiplied && !whole) << hlo::Name(type);
  }
}

// A bf16 holds less than an f32 of the same exponent.
TEST(Scales, NoneIsInfiniteInTheTypeOfTheOperand) {
  const auto takes = [](ElementType type, double factor) {
    const Reduction reduction{ReduceKind::kPremultipliedSum, 1, factor};
    return reduction.Verify("op", {type, {4}}).ok();
  };
  EXPECT_TRUE(takes(ElementType::kF32, 3.4e38));
  EXPECT_FALSE(takes(ElementType::kBF16, 3.4e38));
  EXPECT_TRUE(takes(ElementType::kBF16, -0x1.FEp127));
  EXPECT_FALSE(takes(ElementType::kF16, -65505));
}

TEST(Scales, AreOfTheTypeOfTheOperand) {
  using hlo::Rounded;
  EXPECT_EQ(Rounded(ElementType::kF32, 0.1), 0.1);  // the literal rounds it
  EXPECT_EQ(Rounded(ElementType::kF64, 0.1), 0.1);
  EXPECT_EQ(Rounded(ElementType::kS8, 3), 3);
  EXPECT_EQ(Rounded(ElementType::kBF16, 0.1), 0.10009765625);
  EXPECT_EQ(Rounded(ElementType::kF16, -0.1), -0.0999755859375);
  EXPECT_EQ(Rounded(ElementType::kF16, 2049), 2048);  // to even
  EXPECT_EQ(Rounded(ElementType::kF16, 2051), 2052);
  EXPECT_EQ(Rounded(ElementType::kF16, 65504), 65504);
  EXPECT_EQ(Rounded(ElementType::kF16, 1e-7), 0x1p-23);  // no normal number
  EXPECT_EQ(Rounded(ElementType::kF16, 0x1p-26), 0);
  EXPECT_EQ(Rounded(ElementType::kF8E4M3FN, 0.3), 0.3125);
  EXPECT_EQ(Rounded(ElementType::kF8E5M2, 0.3), 0.3125);
  EXPECT_EQ(Rounded(ElementType::kBF16, INFINITY), INFINITY);
}

INSTANTIATE_TEST_SUITE_P(All, Kinds, testing::ValuesIn(kKinds),
                         [](const auto& info) { return info.param.name; });

TEST(Kinds, ThereAreNoOthers) {
  EXPECT_EQ(kAllReduceKinds.size(), std::size(kKinds));
  EXPECT_EQ(ReduceKindFromName("mul"), ReduceKind::kProduct);  // as torch_xla says it
  for (const char* name : {"", "SUM", "avg", "add", "invalid"}) {
    EXPECT_FALSE(ReduceKindFromName(name).has_value()) << name;
  }
}

// The largest number of which a type holds every whole one up to it, or nearly (a bf16 rounds).
double Largest(ElementType type) {
  if (type == ElementType::kF16) return 65504;
  if (!hlo::IsIntegral(type)) return 3e38;
  return std::pow(2.0, hlo::Bits(type) - (hlo::Class(type) == TypeClass::kSigned ? 1 : 0)) - 1;
}

// An average divides by the number of ranks, in a type that has this number: u8 has no 256.
TEST(Average, DividesByTheNumberOfRanks) {
  for (const ElementType type : kAllTypes) {
    for (const int64_t ranks : {100, 127, 128, 255, 256, 32768, 65536, 100000}) {
      const AllReduce average{{ReduceKind::kAverage}, {}};
      const Result<Lowered> lowered = Lower(average, {{type, {8}}}, TargetOf("gpu", ranks));
      if (type == ElementType::kPred) continue;  // R3
      if (!lowered.ok()) {                       // may be refused where it does not fit
        EXPECT_GT(static_cast<double>(ranks), Largest(type)) << lowered.status().message();
        continue;
      }
      for (const ReadInstruction& instruction : ReadModule(lowered.value().bytes).Instructions()) {
        if (instruction.opcode != "divide") continue;
        const auto divided = hlo::ElementTypeFromNumber(instruction.proto.Sub(3).Int(2));
        EXPECT_LE(static_cast<double>(ranks), Largest(*divided)) << lowered.value().text;
      }
    }
  }
}

}  // namespace
}  // namespace xla_cc
