// torch.distributed's backend "xla_cc": c10d's calls, verified and counted, given to a transport.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "torch_xla_cc/distributed/run_pending.h"
#include "torch_xla_cc/distributed/transport.h"

namespace xla_cc {

class XlaBackend final : public c10d::Backend {
 public:
  // Where other ranks are not in this process, or nowhere, what is traced for a target goes to
  // `on_paper`.
  XlaBackend(std::unique_ptr<Transport> transport, std::unique_ptr<Transport> on_paper,
             Timeout timeout);
  ~XlaBackend() override;

  bool MakesNodes() const { return carrier().MakesNodes(); }
  bool OfAllRanks() const { return carrier().OfAllRanks(); }
  const RankGroup& group() const { return group_; }
  const std::string getBackendName() const override { return "xla_cc"; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return issued_; }
  // The end of the group: what it was called with runs, as others wait for it.
  void shutdown() override { RunPendingAtEnd(group_); }

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  // Without any Work. Whether something was started.
  bool StopCoalescing() noexcept;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

 private:
  // A call that begins here, and takes these tensors, as the ranks shall know it: "op(rest)".
  // The profiler knows it by `event`, if that is another name.
  CallPtr Begin(const char* op, const std::string& rest, const Tensors& inputs, Timeout timeout,
                bool async, const char* event = nullptr) const;
  // Gives it to the transport, and keeps its Work while calls are coalesced.
  template <class Start>
  WorkPtr Issue(const CallPtr& call, bool collective, const Start& start);
  WorkPtr Receive(const Tensors& tensors, int from, int tag);
  // A send or receive of `x` that `start` issues, unless it becomes a part of a batch.
  template <class Start>
  WorkPtr PointToPoint(const char* op, const at::Tensor& x, int peer, int tag, const Start& start);
  std::string RankText(int64_t rank) const;

  bool OnPaper() const;        // this thread traces for a target, and meets nobody
  Transport& carrier() const;  // what carries the next call

  const RankGroup group_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Transport> on_paper_;
  c10::intrusive_ptr<Options> options_;
  std::atomic<uint64_t> issued_{0};  // threads of this rank may call at once
  std::optional<std::vector<WorkPtr>> coalesced_;
  std::vector<TransferEnd> ends_;  // while calls are coalesced: the batch, if it is taken as one
  Tensors end_tensors_;
};

}  // namespace xla_cc
