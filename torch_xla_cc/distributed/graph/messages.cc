// Messages as nodes, on a device whose ranks run programs of their own: a collective_permute of one
// pair, which only its two ranks have. The device compares them by their order from rank to rank.
#include <ATen/ATen.h>

#include <algorithm>
#include <deque>
#include <map>

#include "torch_xla_cc/distributed/graph/graph_transport.h"
#include "torch_xla_cc/distributed/run_pending.h"
#include "torch_xla_cc/distributed/work.h"
#include "torch_xla_cc/distributed/write_into.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/graph/attach.h"
#include "torch_xla_cc/graph/planning.h"
#include "torch_xla_cc/graph/tokens.h"

namespace xla_cc {
namespace {

struct Message {
  CollectivePermute node;
  std::string name;  // by which the device knows it for one
};

at::Tensor Attached(const Message& message, const at::Tensor& operand) {
  const py::gil_scoped_acquire locked;
  const PlanningIn named(message.name);
  return AttachTensors(message.node, {operand})[0];
}

Message MessageOf(const RankGroup& group, int from, int to, int tag) {
  return {{{{group.devices[from], group.devices[to]}}},
          group.name + " (a message, tag " + std::to_string(tag) + ")"};
}

// A receive whose node is made when it is waited for, after those that were posted before it: what
// the sender waits for may be among the calls that come until then.
struct Posted {
  Message message;
  std::vector<int64_t> dims;
  at::TensorOptions options;
  const void* transport;
  at::Tensor result;  // once there is a node
};
using PostedPtr = std::shared_ptr<Posted>;

// By the device that sends. Whoever uses it has the chain's turn. Never destroyed, as the chain.
std::deque<PostedPtr>& PostedOf(int64_t sender) {
  static auto* queues = new std::map<int64_t, std::deque<PostedPtr>>;
  return (*queues)[sender];
}

void Attach(const PostedPtr& wanted) {
  std::deque<PostedPtr>& queue = PostedOf(wanted->message.node.pairs[0].first);
  if (std::find(queue.begin(), queue.end(), wanted) == queue.end()) {
    throw BadValue("wait: the group of this receive has been destroyed, or it has failed before");
  }
  while (!wanted->result.defined()) {
    const PostedPtr first = queue.front();
    queue.pop_front();
    first->result = Attached(first->message, at::zeros(first->dims, first->options));
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
    std::deque<PostedPtr>& queue = PostedOf(device);
    const auto ours = [this](const PostedPtr& one) { return one->transport == this; };
    queue.erase(std::remove_if(queue.begin(), queue.end(), ours), queue.end());
  }
}

WorkPtr GraphTransport::SendInGraph(const CallPtr& call, const at::Tensor& x, int to,
                                    int tag) const {
  if (x.numel() > 0) Attached(MessageOf(group(), group().rank, to, tag), x);
  return Done(call, {x});
}

WorkPtr GraphTransport::ReceiveInGraph(const CallPtr& call, const at::Tensor& x, int from,
                                       int tag) const {
  if (x.numel() == 0) return Done(call, {x});
  const auto posted = std::make_shared<Posted>(
      Posted{MessageOf(group(), from, group().rank, tag), x.sizes().vec(), x.options(), this, {}});
  {
    const ChainTurn turn;
    PostedOf(group().devices[from]).push_back(posted);
  }
  const auto take = [group = group(), health = shared_health(), call, x, posted, from](Timeout) {
    try {
      const ChainTurn turn;
      if (!posted->result.defined()) Attach(posted);
    } catch (...) {
      call->End(GroupCall::State::kFailed);
      health->Break(std::current_exception());
      throw;
    }
    Write(x, posted->result);
    posted->result.reset();
    call->End(GroupCall::State::kDone);
    RunIfLong(group, call->timeout);
    return from;
  };
  return c10::make_intrusive<ReceiveWork>([] { return true; }, take, x);
}

}  // namespace xla_cc
