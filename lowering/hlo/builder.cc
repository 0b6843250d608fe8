#include "lowering/hlo/builder.h"

#include <algorithm>
#include <limits>

#include "lowering/hlo/rounded.h"

namespace xla_cc::hlo {
namespace {

// OpSharding.Type
constexpr int64_t kTuple = 2;
constexpr int64_t kManual = 4;

}  // namespace

ResultType ResultType::Token() {
  ResultType type;
  type.proto_.Int(2, 17);
  type.text_ = "token[]";
  return type;
}

ResultType ResultType::Tuple(const std::vector<ResultType>& elements) {
  ResultType type;
  type.proto_.Int(2, 13);
  type.text_ = "(";
  for (size_t i = 0; i < elements.size(); ++i) {
    type.proto_.Sub(4, elements[i].proto_);
    type.text_ += (i > 0 ? ", " : "") + elements[i].text_;
    type.elements_ += std::max<int64_t>(elements[i].elements_, 1);
  }
  type.text_ += ")";
  return type;
}

ResultType ResultType::TupleOf(const std::vector<Shape>& shapes) {
  return Tuple(std::vector<ResultType>(shapes.begin(), shapes.end()));
}

WireMessage ResultType::ManualSharding() const {
  const WireMessage manual = WireMessage().Int(1, kManual);
  if (elements_ == 0) return manual;
  WireMessage tuple = WireMessage().Int(1, kTuple);
  for (int64_t i = 0; i < elements_; ++i) tuple.Sub(5, manual);
  return tuple;
}

Attributes operator+(Attributes a, const Attributes& b) {
  a.proto.Merge(b.proto);
  a.text += b.text;
  return a;
}

Attributes Dimensions(const std::vector<int64_t>& dims) {
  return {WireMessage().Packed(14, dims), ", dimensions={" + ToString(dims) + "}"};
}

Attributes Calls(const Callee& computation) {
  return {WireMessage().Packed(38, {computation.id}), ", to_apply=%" + computation.name};
}

Attributes FrontendAttribute(const std::string& key, const std::string& value) {
  const WireMessage entry = WireMessage().Bytes(1, key).Bytes(2, value);
  return {WireMessage().Sub(68, WireMessage().Sub(1, entry)),
          ", frontend_attributes={" + key + "=\"" + value + "\"}"};
}

int64_t Computation::Add(const std::string& opcode, const ResultType& type,
                         const std::vector<int64_t>& operands, const Attributes& attributes) {
  const int64_t id = module_->NextId();
  const std::string name = opcode + "." + std::to_string(id);
  WireMessage proto = attributes.proto;
  proto.Bytes(1, name).Bytes(2, opcode).Sub(3, type.proto()).Int(35, id);
  proto.Packed(36, operands);
  const bool manual = rank_ == RankIs::kPartition;
  if (manual) proto.Sub(40, type.ManualSharding());
  instructions_.push_back(std::move(proto));

  text_ += "  %" + name + " = " + type.text() + " " + opcode + "(";
  for (size_t i = 0; i < operands.size(); ++i) {
    text_ += (i > 0 ? ", %" : "%") + module_->names_.at(operands[i]);
  }
  text_ += ")" + attributes.text + (manual ? ", sharding={manual}\n" : "\n");
  module_->names_[id] = name;
  root_id_ = id;
  root_type_ = type;
  return id;
}

Value Computation::Parameter(const Shape& shape) {
  const int64_t number = static_cast<int64_t>(parameters_.size());
  parameters_.push_back(shape);
  const Attributes attributes{WireMessage().Int(9, number), ", number=" + std::to_string(number)};
  return {Add("parameter", shape, {}, attributes), shape};
}

Value Computation::Unary(const std::string& opcode, const Value& x) {
  return {Add(opcode, x.shape, {x.id}), x.shape};
}

Value Computation::Binary(const std::string& opcode, const Value& a, const Value& b) {
  return {Add(opcode, a.shape, {a.id, b.id}), a.shape};
}

Value Computation::Convert(const Value& x, ElementType type) {
  if (x.shape.type == type) return x;
  const Shape shape{type, x.shape.dims};
  return {Add("convert", shape, {x.id}), shape};
}

Value Computation::BitcastConvert(const Value& x, ElementType type) {
  if (x.shape.type == type) return x;
  const Shape shape{type, x.shape.dims};
  return {Add("bitcast-convert", shape, {x.id}), shape};
}

Value Computation::ComplexPart(const std::string& opcode, const Value& x) {
  const ElementType type =
      x.shape.type == ElementType::kC64 ? ElementType::kF32 : ElementType::kF64;
  const Shape shape{type, x.shape.dims};
  return {Add(opcode, shape, {x.id}), shape};
}

Value Computation::Complex(const Value& real, const Value& imaginary) {
  const ElementType type =
      real.shape.type == ElementType::kF32 ? ElementType::kC64 : ElementType::kC128;
  const Shape shape{type, real.shape.dims};
  return {Add("complex", shape, {real.id, imaginary.id}), shape};
}

Value Computation::Select(const Value& condition, const Value& a, const Value& b) {
  return {Add("select", a.shape, {condition.id, a.id, b.id}), a.shape};
}

Value Computation::Broadcast(const Value& x, const Shape& shape, const std::vector<int64_t>& dims) {
  return {Add("broadcast", shape, {x.id}, Dimensions(dims)), shape};
}

Value Computation::Reshape(const Value& x, std::vector<int64_t> dims) {
  if (x.shape.dims == dims) return x;
  const Shape shape{x.shape.type, std::move(dims)};
  return {Add("reshape", shape, {x.id}), shape};
}

Value Computation::OptimizationBarrier(const Value& x) {
  return {Add("opt-barrier", x.shape, {x.id}), x.shape};
}

Value Computation::Transpose(const Value& x, const std::vector<int64_t>& permutation) {
  if (std::is_sorted(permutation.begin(), permutation.end())) return x;
  Shape shape{x.shape.type, {}};
  for (int64_t dim : permutation) shape.dims.push_back(x.shape.dims[dim]);
  return {Add("transpose", shape, {x.id}, Dimensions(permutation)), shape};
}

Value Computation::Slice(const Value& x, int64_t dim, int64_t start, int64_t limit) {
  if (start == 0 && limit == x.shape.dims[dim]) return x;
  Shape shape = x.shape;
  shape.dims[dim] = limit - start;
  Attributes attributes{{}, ", slice={"};
  for (int64_t d = 0; d < x.shape.rank(); ++d) {
    const int64_t from = d == dim ? start : 0;
    const int64_t to = d == dim ? limit : x.shape.dims[d];
    attributes.proto.Sub(17, WireMessage().Int(1, from).Int(2, to).Int(3, 1));
    attributes.text +=
        (d > 0 ? ", [" : "[") + std::to_string(from) + ":" + std::to_string(to) + "]";
  }
  attributes.text += "}";
  return {Add("slice", shape, {x.id}, attributes), shape};
}

Value Computation::Concatenate(const Values& xs, int64_t dim) {
  if (xs.size() == 1) return xs[0];
  Shape shape = xs[0].shape;
  shape.dims[dim] = 0;
  std::vector<int64_t> ids;
  for (const Value& x : xs) {
    shape.dims[dim] += x.shape.dims[dim];
    ids.push_back(x.id);
  }
  return {Add("concatenate", shape, ids, Dimensions({dim})), shape};
}

Value Computation::Pad(const Value& x, int64_t dim, int64_t zeros) {
  if (zeros == 0) return x;
  Shape shape = x.shape;
  shape.dims[dim] += zeros;
  WireMessage config;
  std::string text = ", padding=";
  for (int64_t d = 0; d < x.shape.rank(); ++d) {
    const int64_t high = d == dim ? zeros : 0;
    config.Sub(1, WireMessage().Int(2, high));
    text += (d > 0 ? "x0_" : "0_") + std::to_string(high);
  }
  const Attributes attributes{WireMessage().Sub(21, config), text};
  return {Add("pad", shape, {x.id, Scalar(x.shape.type, 0).id}, attributes), shape};
}

Value Computation::Iota(const Shape& shape, int64_t dim) {
  return {Add("iota", shape, {}, Dimensions({dim})), shape};
}

Value Computation::Compare(const std::string& direction, const Value& a, const Value& b) {
  const Shape shape{ElementType::kPred, a.shape.dims};
  const Attributes attributes{WireMessage().Bytes(63, direction), ", direction=" + direction};
  return {Add("compare", shape, {a.id, b.id}, attributes), shape};
}

Value Computation::DynamicSlice(const Value& x, const Values& starts,
                                const std::vector<int64_t>& sizes) {
  std::vector<int64_t> operands{x.id};
  for (const Value& start : starts) operands.push_back(start.id);
  const Shape shape{x.shape.type, sizes};
  const Attributes attributes{WireMessage().Packed(20, sizes),
                              ", dynamic_slice_sizes={" + ToString(sizes) + "}"};
  return {Add("dynamic-slice", shape, operands, attributes), shape};
}

Value Computation::DynamicUpdateSlice(const Value& x, const Value& update, const Values& starts) {
  std::vector<int64_t> operands{x.id, update.id};
  for (const Value& start : starts) operands.push_back(start.id);
  return {Add("dynamic-update-slice", x.shape, operands), x.shape};
}

Value Computation::Reduce(const Value& x, const Value& init, int64_t dim, const Callee& reducer) {
  Shape shape = x.shape;
  shape.dims.erase(shape.dims.begin() + dim);
  return {Add("reduce", shape, {x.id, init.id}, Dimensions({dim}) + Calls(reducer)), shape};
}

Value Computation::Rank() {
  const Shape shape{ElementType::kU32, {}};
  return {Add(rank_ == RankIs::kPartition ? "partition-id" : "replica-id", shape, {}), shape};
}

Value Computation::Constant(const Shape& shape, const WireMessage& literal,
                            const std::string& text) {
  const Attributes attributes{WireMessage().Sub(8, literal), ", value=" + text};
  return {Add("constant", shape, {}, attributes), shape};
}

Value Computation::Scalar(ElementType type, double value) {
  // One literal form of integers and two of floats, converted to what is asked for; XLA folds that,
  // and may leave out a rounding on the way: it is done here.
  value = Rounded(type, value);
  const bool integral = IsIntegral(type) || type == ElementType::kPred;
  const bool wide = type == ElementType::kF64 || type == ElementType::kC128;
  const Shape shape{integral ? ElementType::kS32
                    : wide   ? ElementType::kF64
                             : ElementType::kF32,
                    {}};
  WireMessage literal;
  literal.Sub(1, shape.ToProto());
  if (integral) {
    literal.Packed(4, {static_cast<int64_t>(value)});
  } else if (wide) {
    literal.PackedRaw<double>(9, {value});
  } else {
    literal.PackedRaw<float>(8, {static_cast<float>(value)});
  }
  return Convert(Constant(shape, literal, ToString(value)), type);
}

Value Computation::Extreme(ElementType type, bool largest) {
  const int bits = Bits(type);
  switch (Class(type)) {
    case TypeClass::kBool:
      return Scalar(type, largest);
    case TypeClass::kUnsigned:
      // All bits of a signed one, taken for unsigned: no literal of 64 unsigned bits is needed.
      return largest ? Unary("not", Scalar(type, 0)) : Scalar(type, 0);
    case TypeClass::kSigned: {
      const int64_t top = std::numeric_limits<int64_t>::max() >> (64 - bits);
      const Shape shape{ElementType::kS64, {}};
      WireMessage literal;
      literal.Sub(1, shape.ToProto()).Packed(5, {largest ? top : -top - 1});
      const std::string text = std::to_string(largest ? top : -top - 1);
      return Convert(Constant(shape, literal, text), type);
    }
    default: {
      // f8e4m3fn has no infinity.
      const double top =
          type == ElementType::kF8E4M3FN ? 448.0 : std::numeric_limits<double>::infinity();
      return Scalar(type, largest ? top : -top);
    }
  }
}

Value Computation::Table(const std::vector<int64_t>& values) {
  const Shape shape{ElementType::kS32, {static_cast<int64_t>(values.size())}};
  WireMessage literal;
  literal.Sub(1, shape.ToProto()).Packed(4, values);
  return Constant(shape, literal, "{" + ToString(values) + "}");
}

Value Computation::Element(int64_t tuple, int64_t index, const Shape& shape) {
  const Attributes attributes{WireMessage().Int(13, index), ", index=" + std::to_string(index)};
  return {Add("get-tuple-element", shape, {tuple}, attributes), shape};
}

void Computation::Return(const Values& values) {
  if (values.size() == 1) {
    root_id_ = values[0].id;
    root_type_ = values[0].shape;
    return;
  }
  std::vector<int64_t> ids;
  std::vector<Shape> shapes;
  for (const Value& value : values) {
    ids.push_back(value.id);
    shapes.push_back(value.shape);
  }
  Add("tuple", ResultType::TupleOf(shapes), ids);
}

Callee Module::Finish(const Computation& computation) {
  const int64_t id = NextId();
  Callee callee{id, computation.name_ + "." + std::to_string(id)};
  WireMessage program_shape;
  std::string parameters;
  for (size_t i = 0; i < computation.parameters_.size(); ++i) {
    const Shape& shape = computation.parameters_[i];
    program_shape.Sub(1, shape.ToProto()).Bytes(3, "p" + std::to_string(i));
    parameters += (i > 0 ? ", " : "") + shape.ToString();
  }
  program_shape.Sub(2, computation.root_type_.proto());
  WireMessage proto;
  proto.Bytes(1, callee.name).Sub(4, program_shape).Int(5, id).Int(6, computation.root_id_);
  computations_.push_back({proto, computation.instructions_});
  text_ += "%" + callee.name + " (" + parameters + ") -> " + computation.root_type_.text() +
           " {\n" + computation.text_ + "  return %" + names_.at(computation.root_id_) + "\n}\n";
  entry_ = callee;
  entry_shape_ = program_shape;
  return callee;
}

Callee Module::Reducer(const std::string& opcode, ElementType type) {
  Computation reducer = Begin(opcode);
  const Value a = reducer.Parameter({type, {}});
  const Value b = reducer.Parameter({type, {}});
  reducer.Return({reducer.Binary(opcode, a, b)});
  return Finish(reducer);
}

std::string Module::Serialize(const Metadata& metadata) const {
  WireMessage origin;
  origin.Bytes(1, metadata.op_type).Bytes(2, metadata.op_name);
  if (!metadata.source_file.empty()) {
    origin.Bytes(3, metadata.source_file).Int(4, metadata.source_line);
  }
  WireMessage proto;
  for (const Finished& finished : computations_) {
    WireMessage computation = finished.proto;
    for (WireMessage instruction : finished.instructions) {
      computation.Sub(2, instruction.Sub(7, origin));
    }
    proto.Sub(3, computation);
  }
  proto.Bytes(1, metadata.op_type).Bytes(2, entry_.name).Sub(4, entry_shape_).Int(6, entry_.id);
  return proto.Serialize();
}

}  // namespace xla_cc::hlo
