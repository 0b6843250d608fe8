// What carries the bytes of a process group. Calls are complete and verified when they come here:
// lists have one entry a rank of the group, shapes and types fit, nothing overlaps.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace xla_cc {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Timeout = std::chrono::milliseconds;

// The ranks of a group, and this rank's place among them.
struct Group {
  std::string name;              // what torch.distributed calls it
  std::vector<int64_t> members;  // ranks of the world, by rank of the group
  int64_t world_size = 0;
  int rank = 0;  // of this process or thread, in the group
  int size() const { return static_cast<int>(members.size()); }
};

// Roots and peers are ranks of the group. Tensors are on an XLA device; outputs are overwritten,
// and may be views of one buffer. A method returns when the call is issued; the Work's wait() when
// what reads the outputs next will see them.
class Transport {
 public:
  explicit Transport(Group group) : group_(std::move(group)) {}
  virtual ~Transport() = default;
  const Group& group() const { return group_; }

  // Between the two, calls need not be carried out yet.
  virtual void Hold() {}
  virtual void Release() {}

  virtual WorkPtr AllReduce(const Tensors& xs, const c10d::ReduceOp& op, Timeout timeout) = 0;
  virtual WorkPtr Broadcast(const Tensors& xs, int root, Timeout timeout) = 0;
  // Only the root's tensors change.
  virtual WorkPtr Reduce(const Tensors& xs, const c10d::ReduceOp& op, int root,
                         Timeout timeout) = 0;
  // outputs[i][r] gets inputs[i] of rank r; the shapes may differ from rank to rank.
  virtual WorkPtr AllGather(const std::vector<Tensors>& outputs, const Tensors& inputs,
                            Timeout timeout) = 0;
  // outputs[i] gets inputs[i] of all ranks, one behind the other in memory.
  virtual WorkPtr AllGatherInto(const Tensors& outputs, const Tensors& inputs, Timeout timeout) = 0;
  // `outputs` is empty but on the root.
  virtual WorkPtr Gather(const Tensors& outputs, const at::Tensor& input, int root,
                         Timeout timeout) = 0;
  // `inputs` is empty but on the root.
  virtual WorkPtr Scatter(const at::Tensor& output, const Tensors& inputs, int root,
                          Timeout timeout) = 0;
  // outputs[i] gets the reduction of inputs[i][own rank] of all ranks; sizes may differ by rank.
  virtual WorkPtr ReduceScatter(const Tensors& outputs, const std::vector<Tensors>& inputs,
                                const c10d::ReduceOp& op, Timeout timeout) = 0;
  // inputs[i] is cut in as many parts as there are ranks, along memory.
  virtual WorkPtr ReduceScatterInto(const Tensors& outputs, const Tensors& inputs,
                                    const c10d::ReduceOp& op, Timeout timeout) = 0;
  // outputs[r] gets inputs[own rank] of rank r.
  virtual WorkPtr AllToAll(const Tensors& outputs, const Tensors& inputs, Timeout timeout) = 0;
  // The same for parts of dimension 0: splits in rows, one a rank.
  virtual WorkPtr AllToAllSingle(const at::Tensor& output, const at::Tensor& input,
                                 const std::vector<int64_t>& output_splits,
                                 const std::vector<int64_t>& input_splits, Timeout timeout) = 0;
  virtual WorkPtr Send(const at::Tensor& x, int to, int tag, Timeout timeout) = 0;
  virtual WorkPtr Recv(const at::Tensor& x, int from, int tag, Timeout timeout) = 0;
  virtual WorkPtr RecvAnySource(const at::Tensor& x, int tag, Timeout timeout) = 0;
  // Returns when all ranks have come.
  virtual WorkPtr Barrier(Timeout timeout) = 0;

 private:
  Group group_;
};

}  // namespace xla_cc
