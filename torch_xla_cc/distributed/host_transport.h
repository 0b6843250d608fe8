// Collectives of a group through the memory of the host: between processes whose devices XLA does
// not connect. gloo carries the bytes.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "torch_xla_cc/distributed/transport.h"

namespace xla_cc {

class HostTransport final : public Transport {
 public:
  HostTransport(Group group, c10::intrusive_ptr<c10d::Backend> gloo);

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
  // Every rank's `own` bytes, which may be of several sizes.
  WorkPtr GatherBytes(const std::vector<int64_t>& sizes, const at::Tensor& own, Tensors* parts,
                      Timeout timeout);
  // All ranks' parts for this rank, one behind the other.
  WorkPtr ExchangeBytes(const at::Tensor& sent, std::vector<int64_t> sent_sizes,
                        std::vector<int64_t> received_sizes, at::Tensor* received, Timeout timeout);
  // Every rank's part for this rank, reduced: bytes[i] is cut into sizes[i] for the ranks.
  WorkPtr ReduceScatterBytes(const Tensors& outputs, const Tensors& bytes,
                             const std::vector<std::vector<int64_t>>& sizes,
                             const c10d::ReduceOp& op, Timeout timeout);

  c10::intrusive_ptr<c10d::Backend> gloo_;
};

}  // namespace xla_cc
