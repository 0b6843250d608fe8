#include "torch_xla_cc/distributed/graph/graph_transport.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "torch_xla_cc/distributed/graph/rows.h"
#include "torch_xla_cc/distributed/reductions.h"
#include "torch_xla_cc/distributed/run_pending.h"
#include "torch_xla_cc/distributed/work.h"
#include "torch_xla_cc/distributed/write_into.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/graph/attach.h"
#include "torch_xla_cc/graph/noted_calls.h"
#include "torch_xla_cc/graph/planning.h"
#include "torch_xla_cc/graph/target.h"
#include "torch_xla_cc/graph/tokens.h"
#include "torch_xla_cc/python_side.h"
#include "torch_xla_cc/threads/meeting.h"
#include "torch_xla_cc/threads/world.h"

namespace xla_cc {

Groups GroupsFor(const RankGroup& group) {
  if (group.IsWorld()) return Groups();
  if (auto axis = Groups::AlongAxis(group.devices, group.world_size)) return *axis;
  const Groups own({group.devices});
  return own.Completed(group.world_size).value_or(own);
}

namespace {

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
  const bool in_place = std::holds_alternative<xla_cc::AllReduce>(node) ||
                        std::holds_alternative<CollectiveBroadcast>(node);
  if (in_place && factor == 1.0) return operands;
  Tensors results;
  for (const at::Tensor& x : operands) {
    results.push_back(factor == 1.0 ? Copied(x) : x * FactorFor(factor, x.scalar_type()));
  }
  return results;
}

// What is traced for a target has its ranks, and groups those of torch.distributed's world.
void RequireSameWorld(const RankGroup& group) {
  const py::gil_scoped_acquire locked;
  const Target target = CurrentTarget();
  if (target.world_size == group.world_size) return;
  throw BadValue("the world of torch.distributed has " + std::to_string(group.world_size) +
                 " ranks, but the target " + target.name + " has " +
                 std::to_string(target.world_size) +
                 ". Inspect for a target of as many devices, or make the world of its size");
}

}  // namespace

GraphTransport::GraphTransport(RankGroup group, std::unique_ptr<HostTransport> beside,
                               std::shared_ptr<Meeting> meeting, CallWays ways)
    : Transport(std::move(group)),
      groups_(GroupsFor(this->group())),
      along_axis_(Groups::AlongAxis(this->group().devices, this->group().world_size).has_value()),
      only_({this->group().devices}),
      beside_(std::move(beside)),
      meeting_(std::move(meeting)),
      ways_(ways) {}

std::unique_ptr<GraphTransport> GraphTransport::OfProcesses(RankGroup group,
                                                            std::unique_ptr<HostTransport> beside,
                                                            CallWays ways) {
  return std::unique_ptr<GraphTransport>(
      new GraphTransport(std::move(group), std::move(beside), nullptr, ways));
}

std::unique_ptr<GraphTransport> GraphTransport::OfThreads(RankGroup group,
                                                          std::shared_ptr<Meeting> meeting) {
  return std::unique_ptr<GraphTransport>(
      new GraphTransport(std::move(group), nullptr, std::move(meeting)));
}

std::unique_ptr<GraphTransport> GraphTransport::OnPaper(RankGroup group) {
  return std::unique_ptr<GraphTransport>(new GraphTransport(std::move(group), nullptr, nullptr));
}

void GraphTransport::Announce(const CallPtr& call) {
  if (meeting_) meeting_->Announce(group(), call);
  // Of a batch only the ranks that it names come.
  const bool all_come = call->number > 0 && call->ends.empty();
  if (beside_ && all_come && group().size() == group().world_size) NotedCalls::Get().Count();
}

void GraphTransport::Admit(const CallPtr& call) {
  const std::shared_ptr<World> world = meeting_ ? World::OfThread() : nullptr;
  if (!world) return;
  const Failure failure = world->RequireOwnThread(group().own(), call->what, call->site);
  if (failure) failure.Throw();
}

void GraphTransport::Forget() {
  if (meeting_) meeting_->Fail(group(), FailureOf(std::current_exception()));
  if (!beside_) DropPending(group());
}

void GraphTransport::Skip() {
  const std::shared_ptr<World> world = meeting_ ? World::OfThread() : nullptr;
  if (world) world->Skip(group().own(), meeting_->id());
}

Tensors GraphTransport::Issue(const CallPtr& call, const Collective& node,
                              const Tensors& operands) const {
  if (group().size() == 1) return Alone(node, operands);
  if (on_paper()) RequireSameWorld(group());
  const bool captures = CallMode::OfThread().captures;
  // Whether ranks agree is not to change until the call is noted: another thread of this rank that
  // answers others waits for its turn.
  std::optional<ChainTurn> turn;
  if (agrees() && !captures) {
    AnswerPeers();
    turn.emplace();
  }
  const bool agreed = agrees() && !captures;
  const bool may_stay = is_whole() || along_axis_;  // since all ranks make it
  if (!agreed || !may_stay) turn.reset();
  if (host_has_groups() && !(agreed && may_stay)) {
    return OnHost(*beside_, call, node, operands);
  }
  if (agreed && !may_stay) return IssueAlone(call, node, operands);
  if (beside_ && !free_to_differ() && !captures && !agreed) Compare(call);
  // What a rank has pending is its own, where ranks have given up, and so no part of a shared
  // program. Others may have given up only now, and run this as a call that they had noted.
  if (gave_up() && !captures) {
    RunApart(call);
    return RunAlone(call, node, operands);
  }
  std::optional<NotedAs> noted;
  if (agreed) {
    CallOfGroup of_group;
    const GroupCall::State state = call->state;  // whether it is yet to be compared
    if (state == GroupCall::State::kIssued) {
      of_group.compare = [beside = beside_, call, state] {
        call->state = state;
        beside->Compare(call);
      };
    }
    if (host_has_groups() && HostCan(node)) {
      of_group.apart = [beside = beside_, call, node, state](const Tensors& given) {
        call->state = state;
        return OnHost(*beside, call, node, given);
      };
    }
    noted.emplace(std::move(of_group));
    call->state = GroupCall::State::kRunning;
  }
  const py::gil_scoped_acquire locked;
  const AttachingFor scope(meeting_ ? meeting_->id() : 0);
  const PlanningIn named(free_to_differ() ? group().name : "");
  Tensors results = AttachTensors(node, operands);
  call->is_counted = true;
  return results;
}

void GraphTransport::Compare(const CallPtr& call) const {
  if (call->state != GroupCall::State::kIssued) return;
  if (!stays()) RunPendingBeforeWaiting();  // what functional collectives have left there
  beside_->Compare(call);
  call->state = GroupCall::State::kRunning;
}

// Other backends issue a call at once, so programs take for granted that a rank may read what it
// gave while another goes on to its next call. In a lazy graph that rank's call would not have been
// issued. So what is pending runs with each call, but where the program says that it need not, or
// where it runs once another rank waits for it (docs/distributed.md, "When a call runs").
WorkPtr GraphTransport::Done(const CallPtr& call, Tensors outputs) const {
  if (holds_) held_ = std::max(held_, call->timeout);
  if (!holds_ && (!stays() || is_long())) RunPending(group(), call->timeout);
  call->End(GroupCall::State::kDone);
  return Issued(std::move(outputs));
}

void GraphTransport::Release() {
  holds_ = false;
  if (stays() && !is_long()) return;
  try {
    RunPending(group(), held_.count() > 0 ? held_ : World::kNoLimit);
  } catch (const RanksDisagree&) {
    health().Break(std::current_exception());
    Forget();
    throw;
  }
}

WorkPtr GraphTransport::AllReduce(const CallPtr& call, const Tensors& xs,
                                  const c10d::ReduceOp& op) {
  const Tensors results = Issue(call, xla_cc::AllReduce{ReductionOf(op), groups_}, xs);
  for (size_t i = 0; i < xs.size(); ++i) Write(xs[i], results[i]);
  return Done(call, xs);
}

WorkPtr GraphTransport::Broadcast(const CallPtr& call, const Tensors& xs, int root) {
  const Tensors results = Issue(call, CollectiveBroadcast{group().devices[root], groups_}, xs);
  for (size_t i = 0; i < xs.size(); ++i) Write(xs[i], results[i]);
  return Done(call, xs);
}

WorkPtr GraphTransport::Reduce(const CallPtr& call, const Tensors& xs, const c10d::ReduceOp& op,
                               int root) {
  const xla_cc::AllReduce node{ReductionOf(op), groups_};
  const bool is_root = group().rank == root;
  if (agrees() && group().size() > 1 && !CallMode::OfThread().captures) {
    // Who is the root is data, so that ranks which write and which do not have one program.
    const Tensors results = Issue(call, node, xs);
    const at::Tensor writes = at::scalar_tensor(is_root, at::kBool).to(xs[0].device());
    for (size_t i = 0; i < xs.size(); ++i) {
      Write(xs[i], at::where(writes, results[i], xs[i]));
    }
    return Done(call, xs);
  }
  const Tensors results = IssueApart(call, node, xs);
  for (size_t i = 0; i < xs.size() && is_root; ++i) Write(xs[i], results[i]);
  return Done(call, xs);
}

Sizes GraphTransport::OfMembers(const std::vector<int64_t>& by_rank) const {
  Sizes sizes(group().world_size, 0);
  for (int rank = 0; rank < group().size(); ++rank) sizes[group().devices[rank]] = by_rank[rank];
  return sizes;
}

WorkPtr GraphTransport::AllGather(const CallPtr& call, const std::vector<Tensors>& outputs,
                                  const Tensors& inputs) {
  const bool alike = std::all_of(outputs.begin(), outputs.end(), AllAlike);
  if (host_has_groups() && !alike) return beside_->AllGather(call, outputs, inputs);
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
  if (host_has_groups()) return beside_->Gather(call, outputs, input, root);
  const Tensors gathered = IssueApart(call, xla_cc::AllGather{0, groups_}, {Rows(input)});
  if (group().rank == root) WriteParts(outputs, gathered[0].reshape({-1}));
  return Done(call, outputs);
}

WorkPtr GraphTransport::Scatter(const CallPtr& call, const at::Tensor& output,
                                const Tensors& inputs, int root) {
  if (host_has_groups()) return beside_->Scatter(call, output, inputs, root);
  const int64_t rows = output.numel();
  const int64_t world_size = group().world_size;
  SizeMatrix sizes(world_size, Sizes(world_size, 0));
  const Groups& groups = along_axis_ ? groups_ : only_;  // as if those beside it did the same
  for (const std::vector<int64_t>& members : groups.Expanded(world_size)) {
    for (const int64_t member : members) sizes[members[root]][member] = rows;
  }
  RunApart(call);
  // Data on every rank, before the call is traced: else the root's program has the parts as well.
  const at::Tensor operand =
      group().rank == root ? Joined(inputs) : at::zeros({rows * group().size()}, output.options());
  WriteParts({output}, IssueApart(call, UnevenAllToAll{sizes, groups}, {operand})[0]);
  return Done(call, {output});
}

WorkPtr GraphTransport::ReduceScatter(const CallPtr& call, const Tensors& outputs,
                                      const std::vector<Tensors>& inputs,
                                      const c10d::ReduceOp& op) {
  const bool alike = std::all_of(inputs.begin(), inputs.end(), AllAlike);
  if (host_has_groups() && !alike) return beside_->ReduceScatter(call, outputs, inputs, op);
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

}  // namespace xla_cc
