// What carries the bytes of a process group. Calls are complete and verified when they come here:
// lists have one entry a rank of the group, shapes and types fit, nothing overlaps.
#pragma once

#include <c10/util/Exception.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "torch_xla_cc/distributed/tensors.h"
#include "torch_xla_cc/groupcall/group_call.h"
#include "torch_xla_cc/groupcall/health.h"

namespace xla_cc {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Before a call that goes through the host, and not through XLA: counted, and as the policy has it.
void ThroughHost(GroupCall& call, const std::string& why);

// Roots and peers are ranks of the group. Tensors are on an XLA device; outputs are overwritten,
// and may be views of one buffer. A method returns when the call is issued; the Work's wait() when
// what reads the outputs next will see them. What goes wrong between ranks is thrown by either, as
// CollectiveMismatch or CollectiveTimeout.
class Transport {
 public:
  explicit Transport(RankGroup group)
      : group_(std::move(group)), health_(std::make_shared<Health>(group_.own())) {}
  virtual ~Transport() = default;
  const RankGroup& group() const { return group_; }
  Health& health() { return *health_; }

  // Whether a call is a node of the lazy graph, and takes nothing from outside of it.
  virtual bool MakesNodes() const { return false; }
  // Whether these are of a program that all ranks have, each as its own number in it.
  virtual bool OfAllRanks() const { return MakesNodes(); }

  // Before a call that this rank makes next, of which the other ranks hear.
  virtual void Announce(const CallPtr& call) = 0;
  // Throws if this thread may not make the call at all. It is none then, and nothing comes of it.
  virtual void Admit(const CallPtr&) {}
  // While what a call has thrown is caught: nothing of it shall run later, and the others hear.
  virtual void Forget() {}
  // The same, of an error that the others may have as well: they do not hear of it.
  virtual void Skip() {}

  // Between the first two, calls need not be carried out yet. The third gives that up.
  virtual void Hold() {}
  virtual void Release() {}
  virtual void StopHolding() noexcept {}

  virtual WorkPtr AllReduce(const CallPtr& call, const Tensors& xs, const c10d::ReduceOp& op) = 0;
  virtual WorkPtr Broadcast(const CallPtr& call, const Tensors& xs, int root) = 0;
  // Only the root's tensors change.
  virtual WorkPtr Reduce(const CallPtr& call, const Tensors& xs, const c10d::ReduceOp& op,
                         int root) = 0;
  // outputs[i][r] gets inputs[i] of rank r; the shapes may differ from rank to rank.
  virtual WorkPtr AllGather(const CallPtr& call, const std::vector<Tensors>& outputs,
                            const Tensors& inputs) = 0;
  // outputs[i] gets inputs[i] of all ranks, one behind the other in memory.
  virtual WorkPtr AllGatherInto(const CallPtr& call, const Tensors& outputs,
                                const Tensors& inputs) = 0;
  // `outputs` is empty but on the root.
  virtual WorkPtr Gather(const CallPtr& call, const Tensors& outputs, const at::Tensor& input,
                         int root) = 0;
  // `inputs` is empty but on the root.
  virtual WorkPtr Scatter(const CallPtr& call, const at::Tensor& output, const Tensors& inputs,
                          int root) = 0;
  // outputs[i] gets the reduction of inputs[i][own rank] of all ranks; sizes may differ by rank.
  virtual WorkPtr ReduceScatter(const CallPtr& call, const Tensors& outputs,
                                const std::vector<Tensors>& inputs, const c10d::ReduceOp& op) = 0;
  // inputs[i] is cut in as many parts as there are ranks, along memory.
  virtual WorkPtr ReduceScatterInto(const CallPtr& call, const Tensors& outputs,
                                    const Tensors& inputs, const c10d::ReduceOp& op) = 0;
  // outputs[r] gets inputs[own rank] of rank r.
  virtual WorkPtr AllToAll(const CallPtr& call, const Tensors& outputs, const Tensors& inputs) = 0;
  // The same for parts of dimension 0: splits in rows, one a rank.
  virtual WorkPtr AllToAllSingle(const CallPtr& call, const at::Tensor& output,
                                 const at::Tensor& input, const std::vector<int64_t>& output_splits,
                                 const std::vector<int64_t>& input_splits) = 0;
  virtual WorkPtr Send(const CallPtr& call, const at::Tensor& x, int to, int tag) = 0;
  virtual WorkPtr Recv(const CallPtr& call, const at::Tensor& x, int from, int tag) = 0;
  // Whether all ranks of the group now bring their sends and receives in batches, together.
  virtual bool TakesBatches() const { return false; }
  // A batch of this rank's: a tensor for each of the call's ends.
  virtual WorkPtr Batch(const CallPtr& call, const Tensors& xs) {
    TORCH_INTERNAL_ASSERT(false, "nobody takes batches: ", call->what, " of ", xs.size());
  }
  // Returns when all ranks have come.
  virtual WorkPtr Barrier(const CallPtr& call) = 0;

 protected:
  const std::shared_ptr<Health>& shared_health() const { return health_; }

 private:
  RankGroup group_;
  std::shared_ptr<Health> health_;
};

}  // namespace xla_cc
