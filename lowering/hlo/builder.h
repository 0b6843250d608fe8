// Builds an HLO module: bytes for XLA, text for people and golden files.
//
// torch_xla imports user computations under rules of its own (ids unique over instructions and
// computations, names with a dot, callees before callers, ...); they are kept here and nowhere
// else. Shapes are never inferred by XLA: each method states the shape of what it builds, and the
// callers pass verified operands.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lowering/hlo/shape.h"

namespace xla_cc::hlo {

// An instruction's result within one computation.
struct Value {
  int64_t id = 0;
  Shape shape;
};
using Values = std::vector<Value>;

// Where an instruction comes from; XLA carries it into its dumps and profiles. Not hashed.
struct Metadata {
  std::string op_type;
  std::string op_name;
  std::string source_file;
  int source_line = 0;
};

// A finished computation that others may call.
struct Callee {
  int64_t id = 0;
  std::string name;
};

// What tells an instance of the program which rank it is.
enum class RankIs { kReplica, kPartition };

class Module;

// What an instruction returns: an array, a tuple of arrays, a token, or a mixture (send, recv).
class ResultType {
 public:
  ResultType(const Shape& shape)  // NOLINT: implicit by intent
      : proto_(shape.ToProto()), text_(shape.ToString()) {}
  static ResultType Token();
  static ResultType Tuple(const std::vector<ResultType>& elements);
  static ResultType TupleOf(const std::vector<Shape>& shapes);
  const WireMessage& proto() const { return proto_; }
  const std::string& text() const { return text_; }
  // OpSharding: each partition has a value of its own.
  WireMessage ManualSharding() const;

 private:
  ResultType() = default;
  WireMessage proto_;
  std::string text_;
  int64_t elements_ = 0;  // of a tuple: those that are no tuples, however deep; else 0
};

// The attributes of one instruction, as proto fields and as text.
struct Attributes {
  WireMessage proto;
  std::string text;  // ", dimensions={0}"
};

class Computation {
 public:
  // Any instruction; the typed methods below are shorter for the usual ones.
  int64_t Add(const std::string& opcode, const ResultType& type,
              const std::vector<int64_t>& operands, const Attributes& attributes = {});

  Value Parameter(const Shape& shape);
  Value Unary(const std::string& opcode, const Value& x);
  Value Binary(const std::string& opcode, const Value& a, const Value& b);
  Value Convert(const Value& x, ElementType type);
  Value BitcastConvert(const Value& x, ElementType type);
  // The real part, the imaginary part, and back.
  Value ComplexPart(const std::string& opcode, const Value& x);
  Value Complex(const Value& real, const Value& imaginary);
  Value Select(const Value& condition, const Value& a, const Value& b);
  Value Broadcast(const Value& x, const Shape& shape, const std::vector<int64_t>& dims);
  Value Reshape(const Value& x, std::vector<int64_t> dims);
  Value OptimizationBarrier(const Value& x);
  Value Transpose(const Value& x, const std::vector<int64_t>& permutation);
  // [start, limit) of one dimension.
  Value Slice(const Value& x, int64_t dim, int64_t start, int64_t limit);
  Value Concatenate(const Values& xs, int64_t dim);
  // So many zeros behind the operand in one dimension.
  Value Pad(const Value& x, int64_t dim, int64_t zeros);
  // Each element's index in that dimension.
  Value Iota(const Shape& shape, int64_t dim);
  Value Compare(const std::string& direction, const Value& a, const Value& b);  // LT, EQ, ...
  Value DynamicSlice(const Value& x, const Values& starts, const std::vector<int64_t>& sizes);
  Value DynamicUpdateSlice(const Value& x, const Value& update, const Values& starts);
  // Reduces one dimension with a reducer made by Module::Reducer.
  Value Reduce(const Value& x, const Value& init, int64_t dim, const Callee& reducer);
  Value Rank();  // u32[]
  // A scalar, or a one-dimensional table of 32 bit numbers.
  Value Scalar(ElementType type, double value);
  // The largest value of a type, or the least; infinite for floats.
  Value Extreme(ElementType type, bool largest);
  // x of that shape, everywhere.
  Value Fill(const Value& scalar, const Shape& shape) { return Broadcast(scalar, shape, {}); }
  Value Zeros(const Shape& shape) { return Fill(Scalar(shape.type, 0), shape); }
  Value Table(const std::vector<int64_t>& values);
  Value Element(int64_t tuple, int64_t index, const Shape& shape);
  // What the computation returns; one value stands alone, several make a tuple.
  void Return(const Values& values);

 private:
  friend class Module;
  Computation(Module* module, std::string name, RankIs rank)
      : module_(module), name_(std::move(name)), rank_(rank) {}
  Value Constant(const Shape& shape, const WireMessage& literal, const std::string& text);

  Module* module_;
  std::string name_;
  RankIs rank_;
  std::vector<Shape> parameters_;
  ResultType root_type_ = ResultType::Token();
  int64_t root_id_ = 0;
  std::vector<WireMessage> instructions_;
  std::string text_;
};

class Module {
 public:
  // Computations are finished in the order in which they may be called: callees first. If a rank
  // is a partition, every instruction says that it is sharded by hand: XLA is not to partition it.
  Computation Begin(const std::string& name, RankIs rank = RankIs::kReplica) {
    return Computation(this, name, rank);
  }
  Callee Finish(const Computation& computation);
  // (a, b) -> opcode(a, b) over scalars.
  Callee Reducer(const std::string& opcode, ElementType type);

  // The last computation that was finished is the entry. The metadata is that of every instruction:
  // it may say what is known only when all of them are there.
  std::string Serialize(const Metadata& metadata) const;
  const std::string& text() const { return text_; }

 private:
  friend class Computation;
  int64_t NextId() { return ++last_id_; }

  struct Finished {
    WireMessage proto;  // all but the instructions
    std::vector<WireMessage> instructions;
  };
  int64_t last_id_ = 0;
  Callee entry_;
  std::vector<Finished> computations_;
  WireMessage entry_shape_;
  std::map<int64_t, std::string> names_;
  std::string text_;
};

// Attribute makers, one per attribute.
Attributes Dimensions(const std::vector<int64_t>& dims);
Attributes Calls(const Callee& computation);
Attributes FrontendAttribute(const std::string& key, const std::string& value);
Attributes operator+(Attributes a, const Attributes& b);

}  // namespace xla_cc::hlo
