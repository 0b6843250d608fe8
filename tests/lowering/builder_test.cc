// Each instruction that the builder makes: its shape, its operands, and its attributes by the field
// numbers of hlo.proto.
#include "lowering/hlo/builder.h"

#include <functional>

#include "tests/lowering/testing.h"
#include "tests/lowering/wire_reader.h"

namespace xla_cc::hlo {
namespace {

// Field numbers of HloInstructionProto that hold lists of numbers.
constexpr int kDimensions = 14;
constexpr int kSliceSizes = 20;
constexpr int kCalled = 38;

struct Case {
  std::string name;
  std::function<Value(Computation&, const Value&)> make;  // of p, f32[4,8]
  std::string opcode;
  Shape shape;
  size_t operands;
  int field;  // 0: no attribute
  Dims values;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Instructions : public testing::TestWithParam<Case> {};

TEST_P(Instructions, Fields) {
  Module module;
  Computation entry = module.Begin("entry");
  const Value p = entry.Parameter(F32({4, 8}));
  const Value made = GetParam().make(entry, p);
  entry.Return({made});
  module.Finish(entry);
  EXPECT_EQ(made.shape, GetParam().shape);

  const ReadInstruction last = ReadModule(module.Serialize({"test.op", "the name", "file.py", 12}))
                                   .computations.back()
                                   .instructions.back();
  EXPECT_EQ(last.id, made.id);
  EXPECT_EQ(last.opcode, GetParam().opcode);
  EXPECT_EQ(last.proto.Bytes(3), GetParam().shape.ToProto().Serialize());
  EXPECT_EQ(last.operands.size(), GetParam().operands);
  for (const int field : {kDimensions, kSliceSizes}) {
    EXPECT_EQ(last.proto.Packed(field), field == GetParam().field ? GetParam().values : Dims());
  }
  const WireReader metadata = last.proto.Sub(7);
  EXPECT_EQ(metadata.Bytes(1), "test.op");
  EXPECT_EQ(metadata.Bytes(2), "the name");
  EXPECT_EQ(metadata.Bytes(3), "file.py");
  EXPECT_EQ(metadata.Int(4), 12);
}

INSTANTIATE_TEST_SUITE_P(
    Builder, Instructions,
    testing::Values(Case{"Unary",
                         [](auto& c, auto& p) { return c.Unary("negate", p); },
                         "negate",
                         F32({4, 8}),
                         1,
                         0,
                         {}},
                    Case{"Binary",
                         [](auto& c, auto& p) { return c.Binary("add", p, p); },
                         "add",
                         F32({4, 8}),
                         2,
                         0,
                         {}},
                    Case{"Convert",
                         [](auto& c, auto& p) { return c.Convert(p, ElementType::kS32); },
                         "convert",
                         S32({4, 8}),
                         1,
                         0,
                         {}},
                    Case{"Bitcast",
                         [](auto& c, auto& p) { return c.BitcastConvert(p, ElementType::kS32); },
                         "bitcast-convert",
                         S32({4, 8}),
                         1,
                         0,
                         {}},
                    Case{"Complex",
                         [](auto& c, auto& p) { return c.Complex(p, p); },
                         "complex",
                         {ElementType::kC64, {4, 8}},
                         2,
                         0,
                         {}},
                    Case{"Real",
                         [](auto& c, auto& p) { return c.ComplexPart("real", c.Complex(p, p)); },
                         "real",
                         F32({4, 8}),
                         1,
                         0,
                         {}},
                    Case{"Select",
                         [](auto& c, auto& p) {
                           return c.Select(c.Convert(p, ElementType::kPred), p, p);
                         },
                         "select",
                         F32({4, 8}),
                         3,
                         0,
                         {}},
                    Case{"Broadcast",
                         [](auto& c, auto& p) { return c.Broadcast(p, F32({4, 2, 8}), {0, 2}); },
                         "broadcast",
                         F32({4, 2, 8}),
                         1,
                         kDimensions,
                         {0, 2}},
                    Case{"Reshape",
                         [](auto& c, auto& p) { return c.Reshape(p, {32}); },
                         "reshape",
                         F32({32}),
                         1,
                         0,
                         {}},
                    Case{"Transpose",
                         [](auto& c, auto& p) { return c.Transpose(p, {1, 0}); },
                         "transpose",
                         F32({8, 4}),
                         1,
                         kDimensions,
                         {1, 0}},
                    Case{"Slice",
                         [](auto& c, auto& p) {
                           const Value zero = c.Scalar(ElementType::kS32, 0);
                           return c.DynamicSlice(p, {zero, zero}, {1, 8});
                         },
                         "dynamic-slice",
                         F32({1, 8}),
                         3,
                         kSliceSizes,
                         {1, 8}},
                    Case{"UpdateSlice",
                         [](auto& c, auto& p) {
                           const Value zero = c.Scalar(ElementType::kS32, 0);
                           return c.DynamicUpdateSlice(p, p, {zero, zero});
                         },
                         "dynamic-update-slice",
                         F32({4, 8}),
                         4,
                         0,
                         {}},
                    Case{"Rank",
                         [](auto& c, auto&) { return c.Rank(); },
                         "replica-id",
                         {ElementType::kU32, {}},
                         0,
                         0,
                         {}}),
    [](const auto& info) { return info.param.name; });

// What changes nothing makes no instruction.
TEST(Builder, NothingToDo) {
  Module module;
  Computation c = module.Begin("entry");
  const Value p = c.Parameter(F32({4, 8}));
  EXPECT_EQ(c.Convert(p, ElementType::kF32).id, p.id);
  EXPECT_EQ(c.BitcastConvert(p, ElementType::kF32).id, p.id);
  EXPECT_EQ(c.Reshape(p, {4, 8}).id, p.id);
}

TEST(Builder, Reduce) {
  Module module;
  Computation c = module.Begin("entry");
  const Value p = c.Parameter(F32({4, 8}));
  const Callee add = module.Reducer("add", ElementType::kF32);
  const Value sum = c.Reduce(p, c.Scalar(ElementType::kF32, 0), 0, add);
  c.Return({sum});
  module.Finish(c);
  EXPECT_EQ(sum.shape, F32({8}));
  const ReadModule read(module.Serialize({}));
  const ReadInstruction& reduce = read.computations.back().instructions.back();
  EXPECT_EQ(reduce.proto.Packed(kDimensions), Dims({0}));
  EXPECT_EQ(reduce.proto.Packed(kCalled), Dims({add.id}));
  EXPECT_EQ(read.computations.front().id, add.id);
  EXPECT_EQ(read.computations.front().instructions.back().opcode, "add");
}

// Constants have three literal forms: s32, f32, f64. Others are converted.
TEST(Builder, Scalars) {
  const std::string f32("\x00\x00\x40\x40", 4);
  const std::string f64("\x00\x00\x00\x00\x00\x00\x08\x40", 8);
  for (const ElementType type : kAllTypes) {
    Module module;
    Computation c = module.Begin("entry");
    const Value three = c.Scalar(type, 3);
    EXPECT_EQ(three.shape, (Shape{type, {}}));
    c.Return({three});
    module.Finish(c);
    const std::vector<ReadInstruction> made = ReadModule(module.Serialize({})).Instructions();
    const WireReader literal = made[0].proto.Sub(8);
    const bool whole = IsIntegral(type) || type == ElementType::kPred;
    const bool wide = type == ElementType::kF64 || type == ElementType::kC128;
    EXPECT_EQ(literal.Sub(1).Int(2), whole ? 4 : wide ? 12 : 11) << Name(type);
    EXPECT_EQ(literal.Bytes(4), whole ? "\x03" : "") << Name(type);
    EXPECT_EQ(literal.Bytes(8), whole || wide ? "" : f32) << Name(type);
    EXPECT_EQ(literal.Bytes(9), wide ? f64 : "") << Name(type);
    const bool converted =
        type != ElementType::kS32 && type != ElementType::kF32 && type != ElementType::kF64;
    EXPECT_EQ(made.back().opcode, converted ? "convert" : "constant") << Name(type);
  }
}

TEST(Builder, Tables) {
  Module module;
  Computation c = module.Begin("entry");
  const Value table = c.Table({0, 300, -1});
  EXPECT_EQ(table.shape, S32({3}));
  c.Return({table});
  module.Finish(c);
  const WireReader literal = ReadModule(module.Serialize({})).Instructions()[0].proto.Sub(8);
  EXPECT_EQ(literal.Packed(4), Dims({0, 300, -1}));
  EXPECT_EQ(literal.Bytes(1), S32({3}).ToProto().Serialize());
}

// One value is the root itself, wherever it stands; several are a tuple. Tokens and tuples are
// shapes without dimensions.
TEST(Builder, Returns) {
  Module module;
  Computation c = module.Begin("entry");
  const Value p = c.Parameter(F32({4}));
  const Value q = c.Parameter(S32({8}));
  c.Unary("negate", p);
  Computation one = c;
  one.Return({p});
  EXPECT_EQ(module.Finish(one).name.substr(0, 6), "entry.");
  EXPECT_EQ(ReadModule(module.Serialize({})).computations[0].root_id, p.id);

  c.Return({q, p});
  module.Finish(c);
  const ReadComputation both = ReadModule(module.Serialize({})).computations[1];
  const ReadInstruction& tuple = both.instructions.back();
  EXPECT_EQ(both.root_id, tuple.id);
  EXPECT_EQ(tuple.operands, Dims({q.id, p.id}));
  EXPECT_EQ(tuple.proto.Sub(3).Int(2), 13);
  EXPECT_EQ(tuple.proto.Sub(3).Subs(4).size(), 2u);
  EXPECT_FALSE(tuple.proto.Sub(3).Has(5));
  EXPECT_EQ(WireReader(ResultType::Token().proto().Serialize()).Int(2), 17);
  const WireReader program(both.program_shape);
  EXPECT_EQ(program.All(3), std::vector<std::string>({"p0", "p1"}));
}

}  // namespace
}  // namespace xla_cc::hlo
