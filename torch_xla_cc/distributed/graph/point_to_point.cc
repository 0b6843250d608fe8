// What only some ranks of a group call, and so is no part of a program that all share: sends and
// receives; and the barrier.
#include <ATen/ATen.h>

#include "torch_xla_cc/distributed/graph/graph_transport.h"
#include "torch_xla_cc/distributed/run_pending.h"
#include "torch_xla_cc/distributed/work.h"
#include "torch_xla_cc/distributed/write_into.h"
#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/threads/meeting.h"

namespace xla_cc {
namespace {

constexpr const char* kTwoEnds =
    "only its two ends make this call, so it is outside of the graph. A batch of a group that is "
    "the world, inside of torch_xla_cc.distributed.in_graph(), is collective_permute";

at::Tensor ToHost(const at::Tensor& x) { return x.to(at::kCPU); }

}  // namespace

WorkPtr GraphTransport::Send(const CallPtr& call, const at::Tensor& x, int to, int tag) {
  if (KeepsMessages(to, tag)) return SendInGraph(call, x, to);
  if (beside_) return beside_->Send(call, x, to, tag);
  ThroughHost(*call, kTwoEnds);
  if (on_paper()) return Issued({x});
  meeting_->Put(group(), to, tag, call, ToHost(x));
  call->End(GroupCall::State::kDone);
  return Issued({x});
}

WorkPtr GraphTransport::Recv(const CallPtr& call, const at::Tensor& x, int from, int tag) {
  if (KeepsMessages(from, tag)) return ReceiveInGraph(call, x, from);
  if (beside_) return beside_->Recv(call, x, from, tag);
  ThroughHost(*call, kTwoEnds);
  if (on_paper()) return Issued({x});
  const Meeting::SlotPtr slot = meeting_->Ask(group(), from, tag, call);
  const auto take = [meeting = meeting_, group = group(), health = shared_health(), call, x,
                     slot](Timeout of_wait) {
    const Timeout limit = of_wait == kNoTimeout ? call->timeout : of_wait;
    try {
      RunPending(group, limit);  // the sender may wait for it
      Unlocked([&] { meeting->Await(group, slot, limit); });
    } catch (...) {
      call->End(GroupCall::State::kFailed);
      health->Break(std::current_exception());
      meeting->Fail(group, FailureOf(std::current_exception()));
      throw;
    }
    Write(x, std::any_cast<const at::Tensor&>(slot->value).to(x.device()));
    call->End(GroupCall::State::kDone);
    return slot->source;
  };
  return c10::make_intrusive<ReceiveWork>(
      [meeting = meeting_, slot] { return meeting->HasCome(slot); }, take, x);
}

WorkPtr GraphTransport::Barrier(const CallPtr& call) {
  if (on_paper()) return Issued({});
  RunPending(group(), call->timeout);  // others may wait for it
  if (beside_) return beside_->Barrier(call);
  Unlocked([&] { return meeting_->Meet(group(), call); });
  call->End(GroupCall::State::kDone);
  return Issued({});
}

}  // namespace xla_cc
