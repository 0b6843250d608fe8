#include "lowering/rules/emitter.h"

#include <algorithm>

#include "lowering/hash.h"

namespace xla_cc {

using hlo::Attributes;
using hlo::Computation;
using hlo::ResultType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;
using hlo::WireMessage;

namespace {

std::vector<Shape> Shapes(const Values& xs) {
  std::vector<Shape> shapes;
  for (const Value& x : xs) shapes.push_back(x.shape);
  return shapes;
}

Attributes ReplicaGroups(const Groups& groups, const Target& target) {
  // A CUDA plugin of 2026 reads no more of the compact form that XLA of 2025 writes: it takes such
  // groups for the world (docs/gpu.md). A list is read by both, and small enough up to here.
  constexpr int64_t kListed = 1024;
  const int64_t world_size = target.world_size;
  const bool listed = target.kind == DeviceKind::kGpu && world_size <= kListed;
  return {WireMessage().Sub(87, groups.ToProto(world_size, listed)),
          ", replica_groups=" + groups.ToHloText(world_size)};
}

Attributes Channel(int64_t channel) {
  return {WireMessage().Int(26, channel), ", channel_id=" + std::to_string(channel)};
}

std::string PairsText(const Pairs& pairs) {
  std::string text;
  for (const auto& [source, target] : pairs) {
    text +=
        (text.empty() ? "{" : ",{") + std::to_string(source) + "," + std::to_string(target) + "}";
  }
  return "{" + text + "}";
}

// Attributes of send, recv and their done halves.
Attributes Transfer(int64_t channel, const Pairs& pairs) {
  Attributes attributes = Channel(channel);
  if (pairs.empty()) return attributes;
  return attributes +
         hlo::FrontendAttribute("_xla_send_recv_source_target_pairs", PairsText(pairs));
}

// The instruction itself, with results taken out of its tuple if there are several.
Values AddInstruction(Computation& c, const std::string& opcode, const std::vector<Shape>& results,
                      const Attributes& attributes, const Values& operands) {
  std::vector<int64_t> ids;
  for (const Value& operand : operands) ids.push_back(operand.id);
  if (results.size() == 1) return {{c.Add(opcode, results[0], ids, attributes), results[0]}};
  const int64_t tuple = c.Add(opcode, ResultType::TupleOf(results), ids, attributes);
  Values values;
  for (size_t i = 0; i < results.size(); ++i) {
    values.push_back(c.Element(tuple, static_cast<int64_t>(i), results[i]));
  }
  return values;
}

int64_t Bytes(const std::vector<Shape>& shapes) {
  int64_t bytes = 0;
  for (const Shape& shape : shapes) bytes += shape.Bytes();
  return bytes;
}

}  // namespace

void Emitter::Count(const std::string& opcode, int64_t wire_bytes, int64_t memory_bytes) {
  opcodes_.push_back(opcode);
  cost_.wire_bytes += wire_bytes;
  cost_.memory_bytes += memory_bytes;
  ++cost_.instructions;
}

Emitter Emitter::On(hlo::Module* module, Computation* entry, const Value& token) const {
  Emitter other(target_, module, entry, identity_, token_.id == 0 ? nullptr : &token);
  other.depth_ = depth_;
  return other;
}

void Emitter::NoteWay(const std::string& way) {
  if (std::find(ways_.begin(), ways_.end(), way) == ways_.end()) ways_.push_back(way);
}

// Ranks that meet by channel agree on it because it follows from what they must agree on.
// All-reduces of one channel get one layout from XLA, so that those of other shapes must have
// channels of their own. The low bit is set: zero would mean no channel.
int64_t Emitter::ChannelOf(const Instruction& instruction) const {
  std::string text = std::to_string(identity_);
  for (const Shape& shape : instruction.results) text += " " + shape.ToString();
  return static_cast<int64_t>((Hash(text) & 0x7ffffffe) | 1);
}

Values Emitter::Emit(Instruction instruction, const Values& operands) {
  Count(instruction.opcode, instruction.wire_bytes, Bytes(instruction.results));
  Encounter& encounter = encounters_.emplace_back();
  encounter.what = instruction.opcode;
  for (const Shape& shape : instruction.results) encounter.what += " " + shape.ToString();
  encounter.groups = instruction.groups;
  const bool by_channel = instruction.meeting == Meeting::kByChannel;
  Attributes attributes = instruction.attributes;
  // XLA:CPU compiles a program per thread. Only instructions with a channel and global ids meet
  // across programs; TPU and GPU run one program and are better off without. A channel is also what
  // tells XLA that partitions are meant, and not replicas.
  const bool threads = target_.kind == DeviceKind::kCpu;
  if (target_.partitioned || (threads && by_channel)) {
    attributes = attributes + Channel(ChannelOf(instruction));
  }
  if (by_channel && (target_.partitioned || threads)) {
    attributes = attributes + Attributes{WireMessage().Int(71, 1), ", use_global_device_ids=true"};
  }
  if (!target_.CallsTakeTokens()) {
    return AddInstruction(*entry_, instruction.opcode, instruction.results, attributes, operands);
  }
  // XLA:CPU's scheduler keeps no program order, folds an all-gather of a constant, and drops a
  // collective whose result a rank does not use. So the instruction stands in a call that is not
  // inlined, (x..., t) -> (y..., not t), and the tiny t goes from collective to collective.
  Computation inner = module_->Begin("ordered_" + instruction.opcode);
  Values inner_operands;
  for (const Value& operand : operands) inner_operands.push_back(inner.Parameter(operand.shape));
  const Value inner_token = inner.Parameter(token_.shape);
  Values results =
      AddInstruction(inner, instruction.opcode, instruction.results, attributes, inner_operands);
  // A call that writes nothing of what the next one reads, XLA:CPU runs beside it.
  results.push_back(inner.Unary("not", inner_token));
  inner.Return(results);

  Values call_operands = operands;
  call_operands.push_back(token_);
  std::vector<Shape> call_results = instruction.results;
  call_results.push_back(token_.shape);
  Values values = AddInstruction(
      *entry_, "call", call_results,
      hlo::Calls(module_->Finish(inner)) + hlo::FrontendAttribute("inlineable", "false"),
      call_operands);
  token_ = values.back();
  values.pop_back();
  return values;
}

Values Emitter::AllGather(const Values& xs, int64_t dim, const Groups& groups) {
  const int64_t members = groups.Size(world_size());
  std::vector<Shape> results = Shapes(xs);
  for (Shape& shape : results) shape.dims[dim] *= members;
  return Emit({"all-gather", results, hlo::Dimensions({dim}) + ReplicaGroups(groups, target_),
               Meeting::kByChannel, Bytes(Shapes(xs)) * (members - 1), groups},
              xs);
}

Values Emitter::AllReduce(const Values& xs, ReduceKind kind, const Groups& any_order) {
  const Groups groups = any_order.Sorted();  // programs that list a group in other orders meet too
  const hlo::Callee reducer = module_->Reducer(ReducerOpcode(kind), xs[0].shape.type);
  const int64_t members = groups.Size(world_size());
  return Emit({"all-reduce", Shapes(xs), ReplicaGroups(groups, target_) + hlo::Calls(reducer),
               Meeting::kByChannel, Bytes(Shapes(xs)) * 2 * (members - 1) / members, groups},
              xs);
}

Values Emitter::ReduceScatter(const Values& xs, ReduceKind kind, int64_t dim,
                              const Groups& groups) {
  const int64_t members = groups.Size(world_size());
  std::vector<Shape> results = Shapes(xs);
  for (Shape& shape : results) shape.dims[dim] /= members;
  const hlo::Callee reducer = module_->Reducer(ReducerOpcode(kind), xs[0].shape.type);
  return Emit({"reduce-scatter", results,
               hlo::Dimensions({dim}) + ReplicaGroups(groups, target_) + hlo::Calls(reducer),
               Meeting::kByChannel, Bytes(results) * (members - 1), groups},
              xs);
}

Value Emitter::CollectivePermute(const Value& x, const Pairs& pairs) {
  WireMessage proto;
  for (const auto& [source, target] : pairs) {
    proto.Sub(52, WireMessage().Int(1, source).Int(2, target));
  }
  return Emit({"collective-permute",
               {x.shape},
               {proto, ", source_target_pairs=" + PairsText(pairs)},
               Meeting::kWithoutChannel,
               pairs.empty() ? 0 : x.shape.Bytes()},
              {x})[0];
}

Value Emitter::AllToAll(const Value& x, int64_t dim, const Groups& groups) {
  const int64_t members = groups.Size(world_size());
  return Emit({"all-to-all",
               {x.shape},
               hlo::Dimensions({dim}) + ReplicaGroups(groups, target_),
               Meeting::kWithoutChannel,
               x.shape.Bytes() / members * (members - 1),
               groups},
              {x})[0];
}

Value Emitter::RaggedAllToAll(const Value& x, const Value& output, const Values& offsets_and_sizes,
                              const Groups& groups, int64_t from_others) {
  Values operands = {x, output};
  operands.insert(operands.end(), offsets_and_sizes.begin(), offsets_and_sizes.end());
  return Emit(
      {"ragged-all-to-all",
       {output.shape},
       ReplicaGroups(groups, target_),
       Meeting::kWithoutChannel,
       output.shape.dims[0] == 0 ? 0 : output.shape.Bytes() / output.shape.dims[0] * from_others,
       groups},
      operands)[0];
}

Value Emitter::CollectiveBroadcast(const Value& x, const Groups& groups) {
  return Emit({"collective-broadcast",
               {x.shape},
               ReplicaGroups(groups, target_),
               Meeting::kWithoutChannel,
               x.shape.Bytes(),
               groups},
              {x})[0];
}

void Emitter::Send(const Value& x, int64_t channel, const Pairs& pairs) {
  Count("send", 0, 0);  // counted where it is received
  const Attributes attributes = Transfer(channel, pairs);
  const ResultType context = Shape{hlo::ElementType::kU32, {}};
  const int64_t token = c().Add("after-all", ResultType::Token(), {});
  const int64_t send = c().Add("send", ResultType::Tuple({x.shape, context, ResultType::Token()}),
                               {x.id, token}, attributes);
  c().Add("send-done", ResultType::Token(), {send}, attributes);
}

Value Emitter::Recv(const Shape& shape, int64_t channel, const Pairs& pairs) {
  Count("recv", shape.Bytes(), shape.Bytes());
  const Attributes attributes = Transfer(channel, pairs);
  const ResultType context = Shape{hlo::ElementType::kU32, {}};
  const int64_t token = c().Add("after-all", ResultType::Token(), {});
  const int64_t recv = c().Add("recv", ResultType::Tuple({shape, context, ResultType::Token()}),
                               {token}, attributes);
  const int64_t done =
      c().Add("recv-done", ResultType::Tuple({shape, ResultType::Token()}), {recv}, attributes);
  return c().Element(done, 0, shape);
}

}  // namespace xla_cc
