// Calls of which each rank knows a part: all_to_all of several sizes, and batches of sends and
// receives. What the others say of theirs makes the one program that all run.
#include <ATen/ATen.h>

#include <algorithm>

#include "torch_xla_cc/distributed/call_mode.h"
#include "torch_xla_cc/distributed/graph/graph_transport.h"
#include "torch_xla_cc/distributed/graph/rows.h"
#include "torch_xla_cc/distributed/run_pending.h"
#include "torch_xla_cc/distributed/work.h"
#include "torch_xla_cc/distributed/write_into.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/graph/target.h"
#include "torch_xla_cc/groupcall/transfers.h"
#include "torch_xla_cc/threads/meeting.h"

namespace xla_cc {
namespace {

// What the ranks of a group would say whose other ranks do not exist: they send this one what it
// expects, and each other what this one sends it.
std::vector<Said> Supposed(const CallPtr& call, const RankGroup& group) {
  const int own = group.rank;
  if (call->sent[own] != call->received[own]) {
    throw BadValue(call->what + ": the rank sends itself " + std::to_string(call->sent[own]) +
                   " rows, but expects " + std::to_string(call->received[own]) +
                   " of itself. Make them the same");
  }
  std::vector<Said> said(group.size(), SaidWithoutSite(*call));
  for (int from = 0; from < group.size(); ++from) said[from].sent[own] = call->received[from];
  return said;
}

}  // namespace

std::vector<Said> GraphTransport::Told(const CallPtr& call) const {
  if (group().size() == 1) return {SaidWithoutSite(*call)};
  if (beside_) {
    RunPendingBeforeWaiting();
    std::vector<Said> said = beside_->Compare(call);
    call->state = GroupCall::State::kRunning;
    return said;
  }
  std::vector<Said> said;
  const auto met = Unlocked([&] { return meeting_->Meet(group(), call); });
  for (const CallPtr& its : met) said.push_back(SaidWithoutSite(*its));
  return said;
}

std::optional<at::Tensor> GraphTransport::Exchanged(const CallPtr& call,
                                                    const at::Tensor& input) const {
  if (host_has_groups()) return std::nullopt;
  if (!on_paper() && !agrees()) RunPending(group(), call->timeout);  // others may wait for it
  const std::vector<Said> calls = on_paper() ? Supposed(call, group()) : Told(call);
  const int64_t first = calls[0].sent[0];
  const bool alike = std::all_of(calls.begin(), calls.end(), [&](const Said& said) {
    return std::all_of(said.sent.begin(), said.sent.end(), [&](int64_t n) { return n == first; });
  });
  if (alike) return Issue(call, xla_cc::AllToAll{0, 0, {}, groups_}, {input})[0];
  // Sizes that change with each call would mean a program for each, to be compiled.
  if (beside_ && !CallMode::OfThread().in_graph) return std::nullopt;
  SizeMatrix sizes(group().world_size, Sizes(group().world_size, 0));
  for (int from = 0; from < group().size(); ++from) {
    sizes[group().devices[from]] = OfMembers(calls[from].sent);
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

// Ranks outside of the group would have to take part in a collective_permute. Those of the groups
// beside it along an axis do, where all ranks have one program: they make the same batch.
bool GraphTransport::TakesBatches() const {
  if (!CallMode::OfThread().in_graph || on_paper()) return false;
  if (group().size() == group().world_size) return true;
  if (!along_axis_) return false;
  const py::gil_scoped_acquire locked;
  return !CurrentTarget().RanksAreThreads();
}

WorkPtr GraphTransport::Batch(const CallPtr& call, const Tensors& xs) {
  const std::vector<Said> calls = Told(call);
  std::string wrong;
  const std::vector<Transfers> rounds = TransferRounds(calls, Matched(group(), calls, &wrong));
  Tensors operands(rounds.size());
  Tensors outputs(rounds.size());
  std::vector<CollectivePermute> nodes(rounds.size());
  const std::vector<std::vector<int64_t>> groups = groups_.Expanded(group().world_size);
  for (size_t i = 0; i < rounds.size(); ++i) {
    for (const Transfer& message : rounds[i]) {
      for (const std::vector<int64_t>& members : groups) {
        nodes[i].pairs.emplace_back(members[message.from], members[message.to]);
      }
      if (message.from == group().rank) operands[i] = xs[message.sent];
      if (message.to == group().rank) outputs[i] = xs[message.received];
    }
    if (operands[i].defined()) continue;
    const TransferEnd& like = calls[rounds[i][0].from].ends[rounds[i][0].sent];
    operands[i] =
        at::zeros(like.dims, xs[0].options().dtype(static_cast<at::ScalarType>(like.dtype)));
  }
  RunApart(call);
  Tensors results;
  for (size_t i = 0; i < rounds.size(); ++i) {
    results.push_back(Issue(call, nodes[i], {operands[i]})[0]);
  }
  RunApart(call);
  for (size_t i = 0; i < rounds.size(); ++i) {  // when all has been read
    if (outputs[i].defined()) Write(outputs[i], results[i]);
  }
  return Done(call, xs);
}

}  // namespace xla_cc
