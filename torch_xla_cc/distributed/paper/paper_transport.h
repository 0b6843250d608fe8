// A group of a dry-run world, outside of the graph: models are built in it, though there are no
// other ranks. What comes of a call is what would if each rank had passed what this one did. What
// this rank would have got of another alone stays as it was: a receive, the part of a scatter.
#pragma once

#include "torch_xla_cc/distributed/transport.h"

namespace xla_cc {

class PaperTransport final : public Transport {
 public:
  using Transport::Transport;
  // How often any was called in this process.
  static int64_t Calls();

  // What it gives is computed from the call's own tensors.
  bool MakesNodes() const override { return true; }
  bool OfAllRanks() const override { return false; }  // the only rank here may have any number
  void Announce(const CallPtr&) override {}

  WorkPtr AllReduce(const CallPtr& call, const Tensors& xs, const c10d::ReduceOp& op) override;
  WorkPtr Broadcast(const CallPtr& call, const Tensors& xs, int root) override;
  WorkPtr Reduce(const CallPtr& call, const Tensors& xs, const c10d::ReduceOp& op,
                 int root) override;
  WorkPtr AllGather(const CallPtr& call, const std::vector<Tensors>& outputs,
                    const Tensors& inputs) override;
  WorkPtr AllGatherInto(const CallPtr& call, const Tensors& outputs,
                        const Tensors& inputs) override;
  WorkPtr Gather(const CallPtr& call, const Tensors& outputs, const at::Tensor& input,
                 int root) override;
  WorkPtr Scatter(const CallPtr& call, const at::Tensor& output, const Tensors& inputs,
                  int root) override;
  WorkPtr ReduceScatter(const CallPtr& call, const Tensors& outputs,
                        const std::vector<Tensors>& inputs, const c10d::ReduceOp& op) override;
  WorkPtr ReduceScatterInto(const CallPtr& call, const Tensors& outputs, const Tensors& inputs,
                            const c10d::ReduceOp& op) override;
  WorkPtr AllToAll(const CallPtr& call, const Tensors& outputs, const Tensors& inputs) override;
  WorkPtr AllToAllSingle(const CallPtr& call, const at::Tensor& output, const at::Tensor& input,
                         const std::vector<int64_t>& output_splits,
                         const std::vector<int64_t>& input_splits) override;
  WorkPtr Send(const CallPtr& call, const at::Tensor& x, int to, int tag) override;
  WorkPtr Recv(const CallPtr& call, const at::Tensor& x, int from, int tag) override;
  WorkPtr Barrier(const CallPtr& call) override;

 private:
  at::Tensor Reduced(const at::Tensor& x, const c10d::ReduceOp& op) const;
};

}  // namespace xla_cc
