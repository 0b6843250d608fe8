// Messages as nodes, on a device whose ranks run programs of their own: a collective_permute of one
// pair, which only its two ranks have. The device compares them by their order from rank to rank.
#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>

#include "torch_xla_cc/distributed/graph/graph_transport.h"
#include "torch_xla_cc/distributed/run_pending.h"
#include "torch_xla_cc/distributed/work.h"
#include "torch_xla_cc/distributed/write_into.h"
#include "torch_xla_cc/dtypes.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/graph/attach.h"
#include "torch_xla_cc/graph/planning.h"
#include "torch_xla_cc/graph/tokens.h"

namespace xla_cc {
namespace {

constexpr int kAsked = 20;  // times whether it has come: then there is nothing else to do

// What goes from one rank to another, as both say it.
struct Message {
  CollectivePermute node;
  std::string name;  // by which the device knows it for one
  std::vector<int64_t> dims;
  at::TensorOptions options;
};

Message MessageOf(const RankGroup& group, int from, int to, const at::Tensor& x) {
  Message message{{{{group.devices[from], group.devices[to]}}},
                  group.name + " (a message)",
                  x.sizes().vec(),
                  x.options()};
  if (x.numel() == 0) {  // there are no collectives of nothing, but both have to say the same
    message.name = group.name + " of " + ShapeText(x) + " (a message)";
    message.dims = {1};
    message.options = x.options().dtype(at::kByte);
  }
  return message;
}

at::Tensor Nothing(const Message& message) { return at::zeros(message.dims, message.options); }

at::Tensor Attached(const Message& message, const at::Tensor& operand) {
  const py::gil_scoped_acquire locked;
  const PlanningIn named(message.name);
  return AttachTensors(message.node, {operand})[0];
}

// A receive whose node is made when it is waited for, after those that were posted before it: what
// the sender waits for may be among the calls that come until then.
struct Posted {
  Message message;
  const void* transport;
  at::Tensor result{};                 // once there is a node
  std::atomic<bool> has_node = false;  // the same, for who asks without the chain's turn
};
using PostedPtr = std::shared_ptr<Posted>;

// What one rank sends to this one. Whoever uses it has the chain's turn.
struct Link {
  std::deque<PostedPtr> posted;
  bool lost = false;  // which message is the next is not known
};

// By the device that sends. Never destroyed, as the chain.
Link& LinkFrom(int64_t sender) {
  static auto* links = new std::map<int64_t, Link>;
  return (*links)[sender];
}

void RequireKnown(const Message& message) {
  const int64_t sender = message.node.pairs[0].first;
  const ChainTurn turn;
  if (!LinkFrom(sender).lost) return;
  throw BadValue("wait: a group was destroyed while a receive from device " +
                 std::to_string(sender) +
                 " was posted and not waited for, so it is not known which message comes next. "
                 "Start the job again, and wait for each receive before its group is destroyed");
}

void Attach(const PostedPtr& wanted) {
  const int64_t sender = wanted->message.node.pairs[0].first;
  Link& link = LinkFrom(sender);
  const auto& posted = link.posted;
  TORCH_INTERNAL_ASSERT(std::find(posted.begin(), posted.end(), wanted) != posted.end());
  while (!wanted->result.defined()) {
    const PostedPtr first = posted.front();
    first->result = Attached(first->message, Nothing(first->message));
    first->has_node = true;
    link.posted.pop_front();
  }
}

// As after other calls: a script that never reads shall not have a program without end.
void RunIfLong(const RankGroup& group, Timeout timeout) {
  if (LongPending()) RunPending(group, timeout);
}

}  // namespace

GraphTransport::~GraphTransport() {
  if (!ways_.messages) return;
  const ChainTurn turn;
  for (const int64_t device : group().devices) {
    Link& link = LinkFrom(device);
    const auto ours = [this](const PostedPtr& one) { return one->transport == this; };
    const auto left = std::remove_if(link.posted.begin(), link.posted.end(), ours);
    link.lost = link.lost || left != link.posted.end();
    link.posted.erase(left, link.posted.end());
  }
}

bool GraphTransport::KeepsMessages(int peer, int tag) const {
  const CallMode mode = CallMode::OfThread();
  return ways_.messages && free_to_differ() && mode.messages && !mode.captures && tag == 0 &&
         peer != kAnySource && peer != group().rank;
}

WorkPtr GraphTransport::SendInGraph(const CallPtr& call, const at::Tensor& x, int to) const {
  const Message message = MessageOf(group(), group().rank, to, x);
  Attached(message, x.numel() == 0 ? Nothing(message) : x);
  return Done(call, {x});
}

WorkPtr GraphTransport::ReceiveInGraph(const CallPtr& call, const at::Tensor& x, int from) const {
  const PostedPtr posted(new Posted{MessageOf(group(), from, group().rank, x), this});
  {
    const ChainTurn turn;
    LinkFrom(group().devices[from]).posted.push_back(posted);
  }
  const auto take = [group = group(), health = shared_health(), call, x, posted, from](Timeout) {
    RequireKnown(posted->message);
    try {
      const ChainTurn turn;
      if (!posted->result.defined()) Attach(posted);
    } catch (...) {
      call->End(GroupCall::State::kFailed);
      health->Break(std::current_exception());
      throw;
    }
    if (x.numel() > 0) Write(x, posted->result);
    posted->result.reset();
    call->End(GroupCall::State::kDone);
    RunIfLong(group, call->timeout);
    return from;
  };
  // Who only asks goes on meanwhile, and may send what the other waits for.
  const auto has_come = [posted, asked = 0]() mutable {
    if (asked++ == 0) RunPendingBeforeWaiting();
    return posted->has_node || asked >= kAsked;
  };
  return c10::make_intrusive<ReceiveWork>(has_come, take, x);
}

}  // namespace xla_cc
