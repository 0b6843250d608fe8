#include "lowering/hlo/builder.h"

namespace xla_cc::hlo {
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
  }
  type.text_ += ")";
  return type;
}

ResultType ResultType::TupleOf(const std::vector<Shape>& shapes) {
  return Tuple(std::vector<ResultType>(shapes.begin(), shapes.end()));
}

Attributes operator+(Attributes a, const Attributes& b) {
  a.proto.Merge(b.proto);
  a.text += b.text;
  return a;
}

Attributes Dimensions(const std::vector<int64_t>& dims) {
  return {Message().Packed(14, dims), ", dimensions={" + ToString(dims) + "}"};
}

Attributes Calls(const Callee& computation) {
  return {Message().Packed(38, {computation.id}), ", to_apply=%" + computation.name};
}

Attributes FrontendAttribute(const std::string& key, const std::string& value) {
  const Message entry = Message().Bytes(1, key).Bytes(2, value);
  return {Message().Sub(68, Message().Sub(1, entry)),
          ", frontend_attributes={" + key + "=\"" + value + "\"}"};
}

int64_t Computation::Add(const std::string& opcode, const ResultType& type,
                         const std::vector<int64_t>& operands, const Attributes& attributes) {
  const int64_t id = module_->NextId();
  const std::string name = opcode + "." + std::to_string(id);
  const Metadata& from = module_->metadata_;
  Message metadata;
  metadata.Bytes(1, from.op_type).Bytes(2, from.op_name);
  if (!from.source_file.empty()) metadata.Bytes(3, from.source_file).Int(4, from.source_line);

  Message proto = attributes.proto;
  proto.Bytes(1, name).Bytes(2, opcode).Sub(3, type.proto()).Sub(7, metadata).Int(35, id);
  proto.Packed(36, operands);
  instructions_.Sub(2, proto);

  text_ += "  %" + name + " = " + type.text() + " " + opcode + "(";
  for (size_t i = 0; i < operands.size(); ++i) {
    text_ += (i > 0 ? ", %" : "%") + module_->names_.at(operands[i]);
  }
  text_ += ")" + attributes.text + "\n";
  module_->names_[id] = name;
  root_id_ = id;
  root_type_ = type;
  return id;
}

Value Computation::Parameter(const Shape& shape) {
  const int64_t number = static_cast<int64_t>(parameters_.size());
  parameters_.push_back(shape);
  const Attributes attributes{Message().Int(9, number), ", number=" + std::to_string(number)};
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

Value Computation::Part(const std::string& opcode, const Value& x) {
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

Value Computation::Transpose(const Value& x, const std::vector<int64_t>& permutation) {
  Shape shape{x.shape.type, {}};
  for (int64_t dim : permutation) shape.dims.push_back(x.shape.dims[dim]);
  return {Add("transpose", shape, {x.id}, Dimensions(permutation)), shape};
}

Value Computation::DynamicSlice(const Value& x, const Values& starts,
                                const std::vector<int64_t>& sizes) {
  std::vector<int64_t> operands{x.id};
  for (const Value& start : starts) operands.push_back(start.id);
  const Shape shape{x.shape.type, sizes};
  const Attributes attributes{Message().Packed(20, sizes),
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

Value Computation::ReplicaId() {
  const Shape shape{ElementType::kU32, {}};
  return {Add("replica-id", shape, {}), shape};
}

Value Computation::Constant(const Shape& shape, const Message& literal, const std::string& text) {
  const Attributes attributes{Message().Sub(8, literal), ", value=" + text};
  return {Add("constant", shape, {}, attributes), shape};
}

Value Computation::Scalar(ElementType type, double value) {
  // One literal form of integers and two of floats, converted to what is asked for; XLA folds that.
  const bool integral = IsIntegral(type) || type == ElementType::kPred;
  const bool wide = type == ElementType::kF64 || type == ElementType::kC128;
  const Shape shape{integral ? ElementType::kS32
                    : wide   ? ElementType::kF64
                             : ElementType::kF32,
                    {}};
  Message literal;
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

Value Computation::Table(const std::vector<int64_t>& values) {
  const Shape shape{ElementType::kS32, {static_cast<int64_t>(values.size())}};
  Message literal;
  literal.Sub(1, shape.ToProto()).Packed(4, values);
  return Constant(shape, literal, "{" + ToString(values) + "}");
}

Value Computation::Element(int64_t tuple, int64_t index, const Shape& shape) {
  const Attributes attributes{Message().Int(13, index), ", index=" + std::to_string(index)};
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
  Message program_shape;
  std::string parameters;
  for (size_t i = 0; i < computation.parameters_.size(); ++i) {
    const Shape& shape = computation.parameters_[i];
    program_shape.Sub(1, shape.ToProto()).Bytes(3, "p" + std::to_string(i));
    parameters += (i > 0 ? ", " : "") + shape.ToString();
  }
  program_shape.Sub(2, computation.root_type_.proto());
  Message proto = computation.instructions_;
  proto.Bytes(1, callee.name).Sub(4, program_shape).Int(5, id).Int(6, computation.root_id_);
  computations_.Sub(3, proto);
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

std::string Module::Serialize() const {
  Message proto = computations_;
  proto.Bytes(1, metadata_.op_type).Bytes(2, entry_.name).Sub(4, entry_shape_).Int(6, entry_.id);
  return proto.Serialize();
}

}  // namespace xla_cc::hlo
