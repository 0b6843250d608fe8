// The same for tensors of the host, in place of gloo.
#pragma once

#include <torch/csrc/distributed/c10d/FakeProcessGroup.hpp>

#include "torch_xla_cc/distributed/paper/paper_transport.h"

namespace xla_cc {

// torch's fake group does nothing in most calls. That is right for a broadcast, a send, a barrier.
class PaperHost final : public c10d::FakeProcessGroup {
 public:
  explicit PaperHost(RankGroup group)
      : FakeProcessGroup(group.rank, group.size()), paper_(std::move(group)) {}

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return 0; }
  void setTimeout(std::chrono::milliseconds) override {}
  void monitoredBarrier(const c10d::BarrierOptions&, bool) override {}

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return paper_.AllReduce(Call(), tensors, opts.reduceOp);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override {
    return paper_.AllReduce(Call(), tensors, opts.reduceOp);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return paper_.Reduce(Call(), tensors, opts.reduceOp, static_cast<int>(opts.rootRank));
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions&) override {
    return paper_.AllGather(Call(), outputs, inputs);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions&) override {
    return paper_.AllGatherInto(Call(), {output}, {input});
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions&) override {
    return paper_.AllGatherInto(Call(), outputs, inputs);
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions&) override {
    return paper_.Gather(Call(), Flat(outputs), inputs.at(0), 0);
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions&) override {
    return paper_.Scatter(Call(), outputs.at(0), Flat(inputs), 0);
  }
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    return paper_.ReduceScatter(Call(), outputs, inputs, opts.reduceOp);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override {
    return paper_.ReduceScatterInto(Call(), {output}, {input}, opts.reduceOp);
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override {
    return paper_.ReduceScatterInto(Call(), outputs, inputs, opts.reduceOp);
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override {
    return paper_.AllToAll(Call(), outputs, inputs);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions&) override {
    if (output_splits.empty() && input_splits.empty()) {
      return paper_.AllToAllSingle(Call(), output, input, {}, {});
    }
    const auto parts = [this](const at::Tensor& x, const std::vector<int64_t>& splits) {
      return splits.empty() ? x.chunk(getSize()) : x.split_with_sizes(splits);
    };
    return paper_.AllToAll(Call(), parts(output, output_splits), parts(input, input_splits));
  }

 private:
  static CallPtr Call() { return std::make_shared<GroupCall>(); }

  PaperTransport paper_;
};

}  // namespace xla_cc
