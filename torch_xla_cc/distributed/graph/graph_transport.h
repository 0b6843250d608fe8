// Collectives of a group as nodes in torch_xla's graph: on devices whose ranks meet in XLA.
#pragma once

#include <memory>
#include <optional>

#include "lowering/collective.h"
#include "torch_xla_cc/distributed/call_mode.h"
#include "torch_xla_cc/distributed/host/host_transport.h"
#include "torch_xla_cc/distributed/run_pending.h"
#include "torch_xla_cc/distributed/transport.h"

namespace xla_cc {

class Meeting;

// As a program has them, by device. Groups along an axis of a mesh come with those beside them, so
// that all ranks, each in its own, have one program. Else other ranks of the world are in groups of
// the same size where that comes out even: they do not take part, and compilers take such groups.
Groups GroupsFor(const RankGroup& group);

// How ranks that are processes carry out calls that are nodes of the graph.
struct CallWays {
  // Calls stay in the graph until it is run for another reason; else each call runs it.
  bool stay = false;
  // What runs is compared by the device, call by call, so ranks may run programs of their own, and
  // cut what they have pending where each likes. Else ranks whose calls stay agree on what they run
  // (python/torch_xla_cc/_processes/agreement.py).
  bool device_compares = false;
  // Where they agree: a program runs on all ranks, or on none. So a group has to be all of them, or
  // those beside it make its calls too; else they go through the host.
  bool all_launch = false;
  // The device brings a message from a rank's program to another's, and its sender goes on.
  bool messages = false;
};

class GraphTransport final : public Transport {
 public:
  // Where ranks are processes, what would make a program of its own for each of them goes `beside`
  // the graph, through the host. Threads need none: they meet.
  static std::unique_ptr<GraphTransport> OfProcesses(RankGroup group,
                                                     std::unique_ptr<HostTransport> beside,
                                                     CallWays ways);
  ~GraphTransport() override;
  static std::unique_ptr<GraphTransport> OfThreads(RankGroup group,
                                                   std::shared_ptr<Meeting> meeting);
  // Traces what processes would run, and meets nobody.
  static std::unique_ptr<GraphTransport> OnPaper(RankGroup group);

  bool MakesNodes() const override { return true; }
  void Announce(const CallPtr& call) override;
  void Admit(const CallPtr& call) override;
  void Forget() override;
  void Skip() override;
  void Hold() override {
    holds_ = true;
    held_ = Timeout(0);
  }
  void StopHolding() noexcept override { holds_ = false; }
  void Release() override;

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
  bool TakesBatches() const override;
  WorkPtr Batch(const CallPtr& call, const Tensors& xs) override;
  WorkPtr Barrier(const CallPtr& call) override;

 private:
  GraphTransport(RankGroup group, std::unique_ptr<HostTransport> beside,
                 std::shared_ptr<Meeting> meeting, CallWays ways = {});
  bool on_paper() const { return !beside_ && !meeting_; }
  // Whether a call that is made now stays in the graph.
  bool stays() const { return (ways_.stay && !GaveUp()) || CallMode::OfThread().in_graph; }
  // Whether ranks agree on what they run of what stays.
  bool agrees() const { return ways_.stay && !ways_.device_compares && Agreeing(); }
  // Whether so many calls are pending on a device whose programs need not be the same on all ranks
  // that they should run before there are more.
  bool is_long() const { return ways_.stay && ways_.device_compares && LongPending(); }
  bool free_to_differ() const { return ways_.device_compares && stays(); }
  // Whether a message is a node in the graphs of its two ranks. Both find the same.
  bool KeepsMessages(int peer, int tag) const;
  WorkPtr SendInGraph(const CallPtr& call, const at::Tensor& x, int to) const;
  WorkPtr ReceiveInGraph(const CallPtr& call, const at::Tensor& x, int from) const;
  // The nodes' results for a call that all ranks have in their graphs.
  Tensors Issue(const CallPtr& call, const Collective& node, const Tensors& operands) const;
  WorkPtr Done(const CallPtr& call, Tensors outputs) const;
  // Between processes that share one program: runs what is pending.
  void RunApart(const CallPtr& call) const;
  bool is_whole() const { return group().size() == group().world_size; }
  // Whether what others than the group's ranks would have to run too is to go through the host.
  bool host_has_groups() const {
    return ways_.all_launch && !is_whole() && !CallMode::OfThread().captures &&
           ((agrees() && !stays_as_asked()) || gave_up());
  }
  // Ranks that agreed make different calls, and this is one that would stay else.
  bool gave_up() const {
    return ways_.stay && !ways_.device_compares && GaveUp() && !stays_as_asked();
  }
  // By in_graph(), and not as one of functional collectives, which wait at once.
  static bool stays_as_asked() {
    const CallMode mode = CallMode::OfThread();
    return mode.in_graph && !mode.waits_at_once;
  }
  static bool HostCan(const Collective& node);
  // The nodes' results through the host, once they are there.
  static Tensors OnHost(HostTransport& host, const CallPtr& call, const Collective& node,
                        const Tensors& operands);
  // As Issue, where ranks agree on what they run: at once, by itself. The results are data.
  Tensors IssueAlone(const CallPtr& call, const Collective& node, const Tensors& operands) const;
  // The same, of a call that was compared.
  static Tensors RunAlone(const CallPtr& call, const Collective& node, const Tensors& operands);
  // Between processes, once: they compare the call before it can block.
  void Compare(const CallPtr& call) const;
  // As Issue, for what the ranks make differently of operands, or do differently with results.
  Tensors IssueApart(const CallPtr& call, const Collective& node, const Tensors& operands) const;
  // By rank of the world: what each member of the group has of it.
  Sizes OfMembers(const std::vector<int64_t>& by_rank) const;
  // What the ranks say of their calls, once all have come.
  std::vector<Said> Told(const CallPtr& call) const;
  // What came of an exchange of parts, one behind the other in dimension 0. None if it is to go
  // beside the graph.
  std::optional<at::Tensor> Exchanged(const CallPtr& call, const at::Tensor& input) const;

  Groups groups_;
  bool along_axis_;                        // of a mesh: groups_ has the groups beside this one
  Groups only_;                            // this group, and ranks that are in none
  std::shared_ptr<HostTransport> beside_;  // also of what compares a pending call later
  std::shared_ptr<Meeting> meeting_;
  const CallWays ways_;
  bool holds_ = false;
  mutable Timeout held_{0};  // the longest limit of the calls that are held
};

}  // namespace xla_cc
