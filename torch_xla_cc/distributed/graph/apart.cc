// Calls that are no part of a program that all ranks run: by themselves, or through the host.
#include <ATen/ATen.h>

#include <algorithm>

#include "torch_xla_cc/distributed/graph/graph_transport.h"
#include "torch_xla_cc/distributed/reductions.h"
#include "torch_xla_cc/distributed/work.h"
#include "torch_xla_cc/distributed/write_into.h"
#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/graph/attach.h"
#include "torch_xla_cc/python_side.h"

namespace xla_cc {
namespace {

Tensors Copies(const Tensors& xs) {
  Tensors copies;
  for (const at::Tensor& x : xs) copies.push_back(Copied(x));
  return copies;
}

// Of `times` as many rows, divided by `parts`.
Tensors Outputs(const Tensors& operands, int64_t times, int64_t parts) {
  Tensors outputs;
  for (const at::Tensor& x : operands) {
    std::vector<int64_t> dims = x.sizes().vec();
    dims[0] = dims[0] * times / parts;
    outputs.push_back(at::empty(dims, x.options()));
  }
  return outputs;
}

}  // namespace

bool GraphTransport::HostCan(const Collective& node) {
  return std::holds_alternative<xla_cc::AllReduce>(node) ||
         std::holds_alternative<CollectiveBroadcast>(node) ||
         std::holds_alternative<xla_cc::AllGather>(node) ||
         std::holds_alternative<xla_cc::ReduceScatter>(node) ||
         std::holds_alternative<xla_cc::AllToAll>(node);
}

Tensors GraphTransport::OnHost(HostTransport& host, const CallPtr& call, const Collective& node,
                               const Tensors& operands) {
  const int64_t size = host.group().size();
  Tensors results;
  WorkPtr work;
  if (const auto* reduce = std::get_if<xla_cc::AllReduce>(&node)) {
    work = host.AllReduce(call, results = Copies(operands), ReduceOpOf(reduce->reduction));
  } else if (const auto* broadcast = std::get_if<CollectiveBroadcast>(&node)) {
    const auto& devices = host.group().devices;
    const auto root = std::find(devices.begin(), devices.end(), broadcast->root);
    work =
        host.Broadcast(call, results = Copies(operands), static_cast<int>(root - devices.begin()));
  } else if (std::holds_alternative<xla_cc::AllGather>(node)) {
    work = host.AllGatherInto(call, results = Outputs(operands, size, 1), operands);
  } else if (const auto* scatter = std::get_if<xla_cc::ReduceScatter>(&node)) {
    results = Outputs(operands, 1, size);
    work = host.ReduceScatterInto(call, results, operands, ReduceOpOf(scatter->reduction));
  } else if (std::holds_alternative<xla_cc::AllToAll>(node)) {
    results = Outputs(operands, 1, 1);
    work = host.AllToAllSingle(call, results[0], operands[0], {}, {});
  } else {
    TORCH_INTERNAL_ASSERT(false, "no call of the host's: ", call->what);
  }
  Unlocked([&] { work->wait(kNoTimeout); });
  return results;
}

Tensors GraphTransport::IssueAlone(const CallPtr& call, const Collective& node,
                                   const Tensors& operands) const {
  Compare(call);
  return RunAlone(call, node, operands);
}

Tensors GraphTransport::RunAlone(const CallPtr& call, const Collective& node,
                                 const Tensors& operands) {
  const py::gil_scoped_acquire locked;
  const auto attach = [&](const Tensors& given) { return AttachTensors(node, given); };
  const py::object results = CallPython(Python().run_alone, operands, py::cpp_function(attach));
  call->is_counted = true;
  return results.cast<Tensors>();
}

Tensors GraphTransport::IssueApart(const CallPtr& call, const Collective& node,
                                   const Tensors& operands) const {
  if (agrees() && group().size() > 1) return IssueAlone(call, node, operands);
  RunApart(call);
  Tensors results = Issue(call, node, operands);
  RunApart(call);
  return results;
}

// What only some ranks do must be no part of a program that all share, where each compiles its own:
// it is run by itself.
void GraphTransport::RunApart(const CallPtr& call) const {
  if (beside_ && !free_to_differ() && !agrees()) RunPending(group(), call->timeout);
}

}  // namespace xla_cc
