// Collectives of a group as nodes in torch_xla's graph: on devices whose ranks meet in XLA.
#pragma once

#include "lowering/collective.h"
#include "torch_xla_cc/distributed/transport.h"

namespace xla_cc {

// Whether calls of this thread stay in the graph until it is run for another reason.
bool& InGraph();

class GraphTransport final : public Transport {
 public:
  explicit GraphTransport(Group group);

  void Hold() override { holds_ = true; }
  void Release() override;

  WorkPtr AllReduce(const Tensors& xs, const c10d::ReduceOp& op, Timeout timeout) override;
  WorkPtr Broadcast(const Tensors& xs, int root, Timeout timeout) override;
  WorkPtr Reduce(const Tensors& xs, const c10d::ReduceOp& op, int root, Timeout timeout) override;
  WorkPtr AllGather(const std::vector<Tensors>& outputs, const Tensors& inputs,
                    Timeout timeout) override;
  WorkPtr AllGatherInto(const Tensors& outputs, const Tensors& inputs, Timeout timeout) override;
  WorkPtr Gather(const Tensors& outputs, const at::Tensor& input, int root,
                 Timeout timeout) override;
  WorkPtr Scatter(const at::Tensor& output, const Tensors& inputs, int root,
                  Timeout timeout) override;
  WorkPtr ReduceScatter(const Tensors& outputs, const std::vector<Tensors>& inputs,
                        const c10d::ReduceOp& op, Timeout timeout) override;
  WorkPtr ReduceScatterInto(const Tensors& outputs, const Tensors& inputs, const c10d::ReduceOp& op,
                            Timeout timeout) override;
  WorkPtr AllToAll(const Tensors& outputs, const Tensors& inputs, Timeout timeout) override;
  WorkPtr AllToAllSingle(const at::Tensor& output, const at::Tensor& input,
                         const std::vector<int64_t>& output_splits,
                         const std::vector<int64_t>& input_splits, Timeout timeout) override;
  WorkPtr Send(const at::Tensor& x, int to, int tag, Timeout timeout) override;
  WorkPtr Recv(const at::Tensor& x, int from, int tag, Timeout timeout) override;
  WorkPtr RecvAnySource(const at::Tensor& x, int tag, Timeout timeout) override;
  WorkPtr Barrier(Timeout timeout) override;

 private:
  WorkPtr Done(Tensors outputs) const;
  // What all ranks of the group have put in, after what is pending has run: they may wait for it.
  std::vector<std::string> Exchange(const std::string& value, Timeout timeout);

  Groups groups_;
  bool holds_ = false;
  uint64_t exchanges_ = 0;
};

}  // namespace xla_cc
