#include "torch_xla_cc/distributed/graph_transport.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>

#include "torch_xla_cc/arguments.h"
#include "torch_xla_cc/distributed/batch.h"
#include "torch_xla_cc/distributed/board.h"
#include "torch_xla_cc/distributed/reductions.h"
#include "torch_xla_cc/distributed/unlocked.h"
#include "torch_xla_cc/distributed/work.h"
#include "torch_xla_cc/distributed/write.h"
#include "torch_xla_cc/graph.h"
#include "torch_xla_cc/ranks.h"

namespace xla_cc {
namespace {

// Groups along an axis of a mesh come with those beside them, so that all ranks, each in its own,
// have one program. Else other ranks of the world are in groups of the same size where that comes
// out even: they do not take part, and compilers take such groups.
Groups GroupsFor(const Group& group) {
  if (group.IsWorld()) return Groups();
  if (auto axis = Groups::AlongAxis(group.members, group.world_size)) return *axis;
  const Groups own({group.members});
  return own.Completed(group.world_size).value_or(own);
}

// As many rows as `rows`; what is filled up does not count.
at::Tensor Filled(const at::Tensor& x, int64_t rows) {
  const int64_t given = x.size(0);
  if (given == rows) return x;
  if (given == 0) {
    std::vector<int64_t> dims = x.sizes().vec();
    dims[0] = rows;
    return at::zeros(dims, x.options());
  }
  // Not a concatenation: XLA:CPU makes one of narrow floats as f32, and so quietens NaNs.
  const auto indices = at::arange(rows, x.options().dtype(at::kLong)).clamp_max(given - 1);
  return x.index_select(0, indices);
}

at::Tensor Joined(const Tensors& parts) {
  Tensors flat;
  for (const at::Tensor& part : parts) flat.push_back(part.reshape({-1}));
  return at::cat(flat);
}

// To each output, its part of what lies one behind the other.
void WriteParts(const Tensors& outputs, const at::Tensor& joined) {
  int64_t start = 0;
  for (const at::Tensor& output : outputs) {
    Write(output, joined.narrow(0, start, output.numel()));
    start += output.numel();
  }
}

// The rows of each rank, so that forms of one call make one node.
at::Tensor Rows(const at::Tensor& x) { return x.dim() == 0 ? x.reshape({1}) : x; }

// Runs what this thread's rank has pending, and what it reads of it.
void RunPending(const Group& group, Timeout timeout) {
  if (group.size() == 1) return;  // nobody waits for it
  const py::gil_scoped_acquire locked;
  const py::module_ door = py::module_::import("torch_xla_cc._threads.read_hooks");
  Ranks::Get().SetLimit(group.own(), timeout);
  const auto restore =
      c10::make_scope_exit([&] { Ranks::Get().SetLimit(group.own(), Ranks::kNoLimit); });
  try {
    const py::object rank = door.attr("default_rank")();
    door.attr(CurrentTarget().RanksAreThreads() ? "run_pending" : "run_graph")(rank);
  } catch (const py::error_already_set& error) {
    // As what they are in C++, for all who handle them here.
    const py::module_ ours = py::module_::import("torch_xla_cc._C");
    const std::string text = py::str(error.value());
    if (error.matches(ours.attr("CollectiveMismatchError"))) throw CollectiveMismatch(text);
    if (error.matches(ours.attr("CollectiveTimeoutError"))) throw CollectiveTimeout(text);
    if (error.matches(ours.attr("RanksDisagree"))) throw RanksDisagree(text);
    throw;
  }
}

template <class T>
double FactorOf(const T& op, decltype(op.reduction)*) {
  return op.reduction.factor;
}
template <class T>
double FactorOf(const T&, ...) {
  return 1.0;
}

// What comes of a node in a group of one rank, which has nobody to meet.
Tensors Alone(const Collective& node, const Tensors& operands) {
  const double factor = Visit(node, [](const auto& op) { return FactorOf(op, nullptr); });
  if (factor == 1.0) return operands;
  Tensors scaled;
  for (const at::Tensor& x : operands) {
    const bool whole = at::isIntegralType(x.scalar_type(), /*includeBool=*/true);
    scaled.push_back(x * (whole ? at::Scalar(static_cast<int64_t>(factor)) : at::Scalar(factor)));
  }
  return scaled;
}

// What is traced for a target has its ranks, and groups those of torch.distributed's world.
void RequireSameWorld(const Group& group) {
  const py::gil_scoped_acquire locked;
  const Target target = CurrentTarget();
  if (target.world_size == group.world_size) return;
  throw BadValue("the world of torch.distributed has " + std::to_string(group.world_size) +
                 " ranks, but the target " + target.name + " has " +
                 std::to_string(target.world_size) +
                 ". Inspect for a target of as many devices, or make the world of its size");
}

constexpr const char* kTwoEnds =
    "only its two ends make this call, so it is outside of the graph. A batch of a group that is "
    "the world, inside of torch_xla_cc.distributed.in_graph(), is collective_permute";

at::Tensor ToHost(const at::Tensor& x) { return x.to(at::kCPU); }

}  // namespace

bool& InGraph() {
  thread_local bool in_graph = false;
  return in_graph;
}

GraphTransport::GraphTransport(Group group, std::unique_ptr<HostTransport> beside)
    : Transport(std::move(group)),
      groups_(GroupsFor(this->group())),
      along_axis_(Groups::AlongAxis(this->group().members, this->group().world_size).has_value()),
      only_({this->group().members}),
      beside_(std::move(beside)) {}

std::unique_ptr<GraphTransport> GraphTransport::OnPaper(Group group) {
  auto transport = std::make_unique<GraphTransport>(std::move(group), nullptr);
  transport->on_paper_ = true;
  return transport;
}

void GraphTransport::Announce(const CallPtr& call) {
  if (!beside_ && !on_paper_) Board::Get().Announce(group(), call);
}

void GraphTransport::Forget() {
  const py::gil_scoped_acquire locked;
  const py::module_ door = py::module_::import("torch_xla_cc._threads.read_hooks");
  if (!beside_) door.attr("drop")(door.attr("default_rank")());
}

Tensors GraphTransport::Issue(const CallPtr& call, const Collective& node,
                              const Tensors& operands) const {
  if (group().size() == 1) return Alone(node, operands);
  if (on_paper_) RequireSameWorld(group());
  if (beside_ && !Capturing() && call->state == GroupCall::State::kIssued) {
    beside_->Compare(call);
    call->state = GroupCall::State::kRunning;
  }
  const py::gil_scoped_acquire locked;
  return AttachTensors(node, operands);
}

// Other backends issue a call at once, so programs take for granted that a rank may read what it
// gave while another goes on to its next call. In a lazy graph that rank's call would not have been
// issued. So what is pending runs with each call, but where the program says that it need not.
WorkPtr GraphTransport::Done(const CallPtr& call, Tensors outputs) const {
  if (!holds_ && !InGraph()) RunPending(group(), call->timeout);
  call->End(GroupCall::State::kDone);
  return Issued(std::move(outputs));
}

// What only some ranks do must be no part of a program that all share, where each compiles its own:
// it is run by itself.
void GraphTransport::Part(const CallPtr& call) const {
  if (beside_) RunPending(group(), call->timeout);
}

Tensors GraphTransport::IssueApart(const CallPtr& call, const Collective& node,
                                   const Tensors& operands) const {
  Part(call);
  Tensors results = Issue(call, node, operands);
  Part(call);
  return results;
}

void GraphTransport::Release() {
  holds_ = false;
  if (!InGraph()) RunPending(group(), Ranks::kNoLimit);
}

WorkPtr GraphTransport::AllReduce(const CallPtr& call, const Tensors& xs,
                                  const c10d::ReduceOp& op) {
  const Tensors results = Issue(call, xla_cc::AllReduce{ReductionOf(op), groups_}, xs);
  for (size_t i = 0; i < xs.size(); ++i) Write(xs[i], results[i]);
  return Done(call, xs);
}

WorkPtr GraphTransport::Broadcast(const CallPtr& call, const Tensors& xs, int root) {
  const Tensors results = Issue(call, CollectiveBroadcast{group().members[root], groups_}, xs);
  for (size_t i = 0; i < xs.size(); ++i) Write(xs[i], results[i]);
  return Done(call, xs);
}

WorkPtr GraphTransport::Reduce(const CallPtr& call, const Tensors& xs, const c10d::ReduceOp& op,
                               int root) {
  const Tensors results = IssueApart(call, xla_cc::AllReduce{ReductionOf(op), groups_}, xs);
  for (size_t i = 0; i < xs.size() && group().rank == root; ++i) Write(xs[i], results[i]);
  return Done(call, xs);
}

Sizes GraphTransport::OfMembers(const std::vector<int64_t>& by_rank) const {
  Sizes sizes(group().world_size, 0);
  for (int rank = 0; rank < group().size(); ++rank) sizes[group().members[rank]] = by_rank[rank];
  return sizes;
}

WorkPtr GraphTransport::AllGather(const CallPtr& call, const std::vector<Tensors>& outputs,
                                  const Tensors& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (AllAlike(outputs[i])) {
      // The node of AllGatherInto: another rank's list may be of one buffer.
      const at::Tensor gathered = Issue(call, xla_cc::AllGather{0, groups_}, {Rows(inputs[i])})[0];
      WriteParts(outputs[i], gathered.reshape({-1}));
      continue;
    }
    const Sizes sizes = OfMembers(Elements(outputs[i]));
    const at::Tensor operand = Filled(inputs[i].reshape({-1}), Largest(sizes));
    WriteParts(outputs[i], IssueApart(call, UnevenAllGather{sizes, only_}, {operand})[0]);
  }
  return Done(call, Flat(outputs));
}

WorkPtr GraphTransport::AllGatherInto(const CallPtr& call, const Tensors& outputs,
                                      const Tensors& inputs) {
  Tensors operands;
  for (const at::Tensor& input : inputs) operands.push_back(Rows(input));
  const Tensors gathered = Issue(call, xla_cc::AllGather{0, groups_}, operands);
  for (size_t i = 0; i < outputs.size(); ++i) Write(outputs[i], gathered[i]);
  return Done(call, outputs);
}

WorkPtr GraphTransport::Gather(const CallPtr& call, const Tensors& outputs, const at::Tensor& input,
                               int root) {
  const Tensors gathered = IssueApart(call, xla_cc::AllGather{0, groups_}, {Rows(input)});
  if (group().rank == root) WriteParts(outputs, gathered[0].reshape({-1}));
  return Done(call, outputs);
}

WorkPtr GraphTransport::Scatter(const CallPtr& call, const at::Tensor& output,
                                const Tensors& inputs, int root) {
  const int64_t rows = output.numel();
  SizeMatrix sizes(group().world_size, Sizes(group().world_size, 0));
  sizes[group().members[root]] = OfMembers(std::vector<int64_t>(group().size(), rows));
  const at::Tensor operand =
      group().rank == root ? Joined(inputs) : at::zeros({rows * group().size()}, output.options());
  WriteParts({output}, IssueApart(call, UnevenAllToAll{sizes, only_}, {operand})[0]);
  return Done(call, {output});
}

WorkPtr GraphTransport::ReduceScatter(const CallPtr& call, const Tensors& outputs,
                                      const std::vector<Tensors>& inputs,
                                      const c10d::ReduceOp& op) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (AllAlike(inputs[i])) {
      const xla_cc::ReduceScatter node{ReductionOf(op), 0, {}, groups_};
      Tensors parts;
      for (const at::Tensor& x : inputs[i]) parts.push_back(x.reshape(Rows(outputs[i]).sizes()));
      Write(outputs[i], Issue(call, node, {at::cat(parts)})[0]);
      continue;
    }
    const Sizes sizes = OfMembers(Elements(inputs[i]));
    const UnevenReduceScatter node{ReductionOf(op), sizes, only_};
    WriteParts({outputs[i]}, IssueApart(call, node, {Joined(inputs[i])})[0]);
  }
  return Done(call, outputs);
}

WorkPtr GraphTransport::ReduceScatterInto(const CallPtr& call, const Tensors& outputs,
                                          const Tensors& inputs, const c10d::ReduceOp& op) {
  Tensors operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<int64_t> dims = Rows(outputs[i]).sizes().vec();
    dims[0] *= group().size();
    operands.push_back(inputs[i].reshape(dims));
  }
  const xla_cc::ReduceScatter node{ReductionOf(op), 0, {}, groups_};
  const Tensors scattered = Issue(call, node, operands);
  for (size_t i = 0; i < outputs.size(); ++i) Write(outputs[i], scattered[i]);
  return Done(call, outputs);
}

std::vector<Said> GraphTransport::Told(const CallPtr& call) const {
  if (beside_) {
    std::vector<Said> said = beside_->Compare(call);
    call->state = GroupCall::State::kRunning;
    return said;
  }
  std::vector<Said> said;
  const auto met = Unlocked([&] { return Board::Get().Meet(group(), call); });
  for (const CallPtr& its : met) {
    said.push_back({its->what, its->sent, its->received, its->ends, ""});
  }
  return said;
}

std::optional<at::Tensor> GraphTransport::Exchanged(const CallPtr& call,
                                                    const at::Tensor& input) const {
  if (on_paper_) {
    throw BadValue(
        call->what +
        ": each rank knows its own split sizes only, and no other rank is met while this "
        "is traced. Trace all ranks: torch_xla_cc.compare_ranks, or launch");
  }
  RunPending(group(), call->timeout);  // others may wait for it
  const std::vector<Said> calls = Told(call);
  const int64_t first = calls[0].sent[0];
  const bool alike = std::all_of(calls.begin(), calls.end(), [&](const Said& said) {
    return std::all_of(said.sent.begin(), said.sent.end(), [&](int64_t n) { return n == first; });
  });
  if (alike) return Issue(call, xla_cc::AllToAll{0, 0, {}, groups_}, {input})[0];
  // Sizes that change with each call would mean a program for each, to be compiled.
  if (beside_ && !InGraph()) return std::nullopt;
  SizeMatrix sizes(group().world_size, Sizes(group().world_size, 0));
  for (int from = 0; from < group().size(); ++from) {
    sizes[group().members[from]] = OfMembers(calls[from].sent);
  }
  const at::Tensor operand = Filled(input, Largest(Sums(sizes)));
  return IssueApart(call, UnevenAllToAll{sizes, only_}, {operand})[0];
}

WorkPtr GraphTransport::AllToAll(const CallPtr& call, const Tensors& outputs,
                                 const Tensors& inputs) {
  const std::optional<at::Tensor> received = Exchanged(call, Joined(inputs));
  if (!received) return beside_->AllToAll(call, outputs, inputs);
  WriteParts(outputs, *received);
  return Done(call, outputs);
}

WorkPtr GraphTransport::AllToAllSingle(const CallPtr& call, const at::Tensor& output,
                                       const at::Tensor& input,
                                       const std::vector<int64_t>& output_splits,
                                       const std::vector<int64_t>& input_splits) {
  if (input_splits.empty()) {
    Write(output, Issue(call, xla_cc::AllToAll{0, 0, {}, groups_}, {input})[0]);
    return Done(call, {output});
  }
  const std::optional<at::Tensor> received = Exchanged(call, input);
  if (!received) return beside_->AllToAllSingle(call, output, input, output_splits, input_splits);
  Write(output, received->narrow(0, 0, output.size(0)));
  return Done(call, {output});
}

WorkPtr GraphTransport::Send(const CallPtr& call, const at::Tensor& x, int to, int tag) {
  if (beside_) return beside_->Send(call, x, to, tag);
  ThroughHost(*call, kTwoEnds);
  if (on_paper_) return Issued({x});
  Board::Get().Put(group(), to, tag, call, ToHost(x));
  call->End(GroupCall::State::kDone);
  return Issued({x});
}

WorkPtr GraphTransport::Recv(const CallPtr& call, const at::Tensor& x, int from, int tag) {
  if (beside_) return beside_->Recv(call, x, from, tag);
  ThroughHost(*call, kTwoEnds);
  if (on_paper_) return Issued({x});
  const Board::SlotPtr slot = Board::Get().Ask(group(), from, tag, call);
  const auto take = [group = group(), health = shared_health(), call, x, slot](Timeout of_wait) {
    const Timeout limit = of_wait == kNoTimeout ? call->timeout : of_wait;
    RunPending(group, limit);  // the sender may wait for it
    try {
      Unlocked([&] { Board::Get().Await(group, slot, limit); });
    } catch (...) {
      call->End(GroupCall::State::kFailed);
      health->Break(std::current_exception());
      throw;
    }
    Write(x, slot->x.to(x.device()));
    call->End(GroupCall::State::kDone);
    return slot->source;
  };
  return c10::make_intrusive<ReceiveWork>([slot] { return Board::Get().HasCome(slot); }, take, x);
}

// Ranks outside of the group would have to take part in a collective_permute. Those of the groups
// beside it along an axis do, where all ranks have one program: they make the same batch.
bool GraphTransport::TakesBatches() const {
  if (!InGraph() || on_paper_) return false;
  if (group().size() == group().world_size) return true;
  if (!along_axis_) return false;
  const py::gil_scoped_acquire locked;
  return !CurrentTarget().RanksAreThreads();
}

WorkPtr GraphTransport::Batch(const CallPtr& call, const Tensors& xs) {
  const std::vector<Said> calls = Told(call);
  std::string wrong;
  const std::vector<Messages> rounds = Rounds(calls, Matched(group(), calls, &wrong));
  Tensors operands(rounds.size());
  Tensors outputs(rounds.size());
  std::vector<CollectivePermute> nodes(rounds.size());
  const std::vector<std::vector<int64_t>> groups = groups_.Expanded(group().world_size);
  for (size_t i = 0; i < rounds.size(); ++i) {
    for (const Message& message : rounds[i]) {
      for (const std::vector<int64_t>& members : groups) {
        nodes[i].pairs.emplace_back(members[message.from], members[message.to]);
      }
      if (message.from == group().rank) operands[i] = xs[message.sent];
      if (message.to == group().rank) outputs[i] = xs[message.received];
    }
    if (operands[i].defined()) continue;
    const MessageEnd& like = calls[rounds[i][0].from].ends[rounds[i][0].sent];
    operands[i] =
        at::zeros(like.dims, xs[0].options().dtype(static_cast<at::ScalarType>(like.dtype)));
  }
  Part(call);
  Tensors results;
  for (size_t i = 0; i < rounds.size(); ++i) {
    results.push_back(Issue(call, nodes[i], {operands[i]})[0]);
  }
  Part(call);
  for (size_t i = 0; i < rounds.size(); ++i) {  // when all has been read
    if (outputs[i].defined()) Write(outputs[i], results[i]);
  }
  return Done(call, xs);
}

WorkPtr GraphTransport::Barrier(const CallPtr& call) {
  if (on_paper_) return Issued({});
  RunPending(group(), call->timeout);  // others may wait for it
  if (beside_) return beside_->Barrier(call);
  Unlocked([&] { return Board::Get().Meet(group(), call); });
  call->End(GroupCall::State::kDone);
  return Issued({});
}

}  // namespace xla_cc
