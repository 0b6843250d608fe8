// Collectives of a group through the memory of the host: between processes whose devices XLA does
// not connect. gloo carries the bytes.
#pragma once

#include <list>
#include <map>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "torch_xla_cc/distributed/host/gloo_group.h"
#include "torch_xla_cc/distributed/host/host_p2p.h"
#include "torch_xla_cc/distributed/host/host_work.h"
#include "torch_xla_cc/distributed/transport.h"
#include "torch_xla_cc/groupcall/job_queue.h"

namespace xla_cc {

class HostTransport final : public Transport {
 public:
  HostTransport(RankGroup group, c10::intrusive_ptr<c10d::Backend> gloo,
                const c10::intrusive_ptr<c10d::Store>& store, CheckMode mode, std::string why);

  // Waits until all ranks have come to a call that something else carries out. What each said.
  std::vector<Said> Compare(const CallPtr& call);

  void Announce(const CallPtr& call) override;
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
  using Step = HostWork::Step;

  c10::intrusive_ptr<HostWork> Run(const CallPtr& call, std::vector<Step> parts, Tensors outputs);
  // The same for what moves no tensors here.
  c10::intrusive_ptr<HostWork> Enqueue(const CallPtr& call, std::vector<Step> parts,
                                       Tensors outputs);
  PointToPoint Ends(const CallPtr& call, int peer, int tag);
  // One that gives `x` the reduction, if `write`.
  Step Reduction(const CallPtr& call, const at::Tensor& x, const c10d::ReduceOp& op, bool write);
  // Gathers every rank's `own` bytes, which may be of several sizes.
  WorkPtr GatherBytes(Timeout timeout, const std::vector<int64_t>& sizes, const at::Tensor& own,
                      Tensors* parts);
  // All ranks' parts for this rank, one behind the other.
  WorkPtr ExchangeBytes(Timeout timeout, const at::Tensor& sent, std::vector<int64_t> sent_sizes,
                        std::vector<int64_t> received_sizes, at::Tensor* received);
  // Gives `output` every rank's part for this rank, reduced: `bytes` is cut into sizes for the
  // ranks.
  Step ReduceParts(const CallPtr& call, const at::Tensor& output, const at::Tensor& bytes,
                   const std::vector<int64_t>& sizes, const c10d::ReduceOp& op);

  const std::string why_;  // the host and not XLA
  std::shared_ptr<GlooGroup> gloo_;
  StoreCheckPtr check_;
  std::shared_ptr<OwnMail> own_mail_ = std::make_shared<OwnMail>();
  std::mutex sends_mutex_;        // of the next two: threads of this rank may send at once
  std::map<int, uint32_t> sent_;  // messages, by the rank that they go to
  // What may not have gone yet: gloo needs the memory, whether or not the caller keeps the Work.
  std::list<c10::intrusive_ptr<HostSend>> sends_;
  JobQueue queue_;  // destroyed first: its jobs use the others
};

}  // namespace xla_cc
