#include "torch_xla_cc/distributed/paper/paper_transport.h"

#include <ATen/ATen.h>

#include <atomic>

#include "torch_xla_cc/distributed/graph/rows.h"
#include "torch_xla_cc/distributed/reductions.h"
#include "torch_xla_cc/distributed/work.h"
#include "torch_xla_cc/distributed/write_into.h"
#include "torch_xla_cc/graph/attach.h"

namespace xla_cc {
namespace {

std::atomic<int64_t> calls{0};

WorkPtr Done(const CallPtr& call, Tensors outputs, int source = -1) {
  ++calls;
  call->End(GroupCall::State::kDone);
  return Issued(std::move(outputs), source);
}

// Not the same value in two tensors: one may be written to.
void Give(const at::Tensor& output, const at::Tensor& value) { Write(output, Copied(value)); }

at::Tensor Parts(const at::Tensor& x, int64_t count) { return x.reshape({count, -1}); }

}  // namespace

int64_t PaperTransport::Calls() { return calls; }

at::Tensor PaperTransport::Reduced(const at::Tensor& x, const c10d::ReduceOp& op) const {
  const Reduction reduction = ReductionOf(op);
  const int64_t size = group().size();
  const at::ScalarType type = x.scalar_type();
  switch (reduction.kind) {
    case ReduceKind::kXor:
      return size % 2 == 1 ? x : at::zeros_like(x);
    case ReduceKind::kSum:
    case ReduceKind::kPremultipliedSum:
      if (type == at::kBool) return x;
      return x * FactorFor(reduction.factor * static_cast<double>(size), type);
    case ReduceKind::kProduct:
      return type == at::kBool ? x : at::pow(x, size);
    default:
      return x;
  }
}

WorkPtr PaperTransport::AllReduce(const CallPtr& call, const Tensors& xs,
                                  const c10d::ReduceOp& op) {
  for (const at::Tensor& x : xs) Write(x, Reduced(x, op));
  return Done(call, xs);
}

WorkPtr PaperTransport::Broadcast(const CallPtr& call, const Tensors& xs, int) {
  return Done(call, xs);
}

WorkPtr PaperTransport::Reduce(const CallPtr& call, const Tensors& xs, const c10d::ReduceOp& op,
                               int root) {
  if (group().rank == root) return AllReduce(call, xs, op);
  return Done(call, xs);
}

WorkPtr PaperTransport::AllGather(const CallPtr& call, const std::vector<Tensors>& outputs,
                                  const Tensors& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const at::Tensor& output : outputs[i]) {
      if (output.numel() == inputs[i].numel()) Give(output, inputs[i]);
    }
  }
  return Done(call, Flat(outputs));
}

WorkPtr PaperTransport::AllGatherInto(const CallPtr& call, const Tensors& outputs,
                                      const Tensors& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    Give(outputs[i], inputs[i].reshape({-1}).repeat({group().size()}));
  }
  return Done(call, outputs);
}

WorkPtr PaperTransport::Gather(const CallPtr& call, const Tensors& outputs, const at::Tensor& input,
                               int) {
  for (const at::Tensor& output : outputs) Give(output, input);
  return Done(call, outputs);
}

WorkPtr PaperTransport::Scatter(const CallPtr& call, const at::Tensor& output,
                                const Tensors& inputs, int) {
  if (!inputs.empty()) Give(output, inputs[group().rank]);
  return Done(call, {output});
}

WorkPtr PaperTransport::ReduceScatter(const CallPtr& call, const Tensors& outputs,
                                      const std::vector<Tensors>& inputs,
                                      const c10d::ReduceOp& op) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    Give(outputs[i], Reduced(inputs[i][group().rank], op));
  }
  return Done(call, outputs);
}

WorkPtr PaperTransport::ReduceScatterInto(const CallPtr& call, const Tensors& outputs,
                                          const Tensors& inputs, const c10d::ReduceOp& op) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].numel() == 0) continue;
    Give(outputs[i], Reduced(Parts(inputs[i], group().size())[group().rank], op));
  }
  return Done(call, outputs);
}

// Each rank sends to each what this one sends to itself and to its namesakes: its part `rank`.
// Where that has not as many elements as are expected, as many of all that this rank sends, over
// again.
WorkPtr PaperTransport::AllToAll(const CallPtr& call, const Tensors& outputs,
                                 const Tensors& inputs) {
  const at::Tensor& part = inputs[group().rank];
  const at::Tensor all = Joined(inputs);
  for (const at::Tensor& output : outputs) {
    const int64_t count = output.numel();
    if (count == part.numel()) {
      Give(output, part);
    } else if (count > 0 && all.numel() > 0) {
      const int64_t times = (count - 1) / all.numel() + 1;
      Give(output, all.repeat({times}).narrow(0, 0, count));
    }
  }
  return Done(call, outputs);
}

WorkPtr PaperTransport::AllToAllSingle(const CallPtr& call, const at::Tensor& output,
                                       const at::Tensor& input,
                                       const std::vector<int64_t>& output_splits,
                                       const std::vector<int64_t>& input_splits) {
  if (!input_splits.empty()) {
    return AllToAll(call, output.split_with_sizes(output_splits),
                    input.split_with_sizes(input_splits));
  }
  if (input.numel() > 0) {
    Give(output, Parts(input, group().size())[group().rank].repeat({group().size()}));
  }
  return Done(call, {output});
}

WorkPtr PaperTransport::Send(const CallPtr& call, const at::Tensor& x, int, int) {
  return Done(call, {x});
}

WorkPtr PaperTransport::Recv(const CallPtr& call, const at::Tensor& x, int from, int) {
  const int next = (group().rank + 1) % group().size();
  return Done(call, {x}, from < 0 ? next : from);
}

WorkPtr PaperTransport::Barrier(const CallPtr& call) { return Done(call, {}); }

}  // namespace xla_cc
