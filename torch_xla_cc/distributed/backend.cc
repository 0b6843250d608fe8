#include "torch_xla_cc/distributed/backend.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <numeric>

#include "lowering/errors.h"
#include "torch_xla_cc/arguments.h"
#include "torch_xla_cc/distributed/work.h"

namespace xla_cc {
namespace {

std::string Shape(const at::Tensor& x) {
  std::string dims;
  for (int64_t dim : x.sizes()) dims += (dims.empty() ? "" : ",") + std::to_string(dim);
  return std::string(c10::toString(x.scalar_type())) + "[" + dims + "]";
}

[[noreturn]] void Wrong(const std::string& label, const std::string& op,
                        const std::string& argument, const std::string& value,
                        const std::string& required, const std::string& remedy) {
  throw BadValue(Refuse({label, op, argument, value, required, remedy}).message());
}

// (D1) a dense tensor on an XLA device.
void RequireOurs(const char* op, const std::string& argument, const at::Tensor& x) {
  if (x.defined() && x.device().type() == at::kXLA && x.layout() == at::kStrided) return;
  Wrong("D1", op, argument, x.defined() ? Shape(x) + " on " + x.device().str() : "undefined",
        "a dense tensor on an XLA device", "Move it: tensor.to(torch_xla.device())");
}

void RequireOurs(const char* op, const std::string& argument, const Tensors& xs) {
  if (xs.empty()) Wrong("D1", op, argument, "[]", "a list of tensors", "Pass at least one");
  for (size_t i = 0; i < xs.size(); ++i) {
    RequireOurs(op, argument + "[" + std::to_string(i) + "]", xs[i]);
  }
}

// (D2) outputs are of the type of the inputs.
void RequireType(const char* op, const std::string& argument, const at::Tensor& x,
                 const at::Tensor& like) {
  if (x.scalar_type() == like.scalar_type()) return;
  Wrong("D2", op, argument, Shape(x),
        "of the dtype of the input, " + std::string(c10::toString(like.scalar_type())),
        "Allocate it with that dtype");
}

// (D3) a list with an entry for each rank of the group.
void RequireCount(const char* op, const std::string& argument, size_t count, int size) {
  if (count == static_cast<size_t>(size)) return;
  Wrong("D3", op, argument, std::to_string(count) + " tensors",
        "one tensor for each of the " + std::to_string(size) + " ranks of the group",
        "Pass as many");
}

// (D4) elements of one tensor, by those of another.
void RequireElements(const char* op, const std::string& argument, const at::Tensor& x,
                     int64_t elements, const std::string& why) {
  if (x.numel() == elements) return;
  Wrong("D4", op, argument, Shape(x), "of " + std::to_string(elements) + " elements, " + why,
        "Allocate it with that size");
}

// (D5) a rank of the group.
void RequireRank(const char* op, const std::string& argument, int64_t rank, int size) {
  if (rank >= 0 && rank < size) return;
  Wrong("D5", op, argument, std::to_string(rank),
        "a rank of the group, 0 to " + std::to_string(size - 1), "Name one of them");
}

template <class T>
const T& Only(const char* op, const std::string& argument, const std::vector<T>& list) {
  if (list.size() == 1) return list[0];
  Wrong("D1", op, argument, std::to_string(list.size()) + " entries", "one: a rank has one device",
        "Pass a list of one");
}

// (D6) how dimension 0 is cut for the ranks.
void RequireSplits(const char* op, const std::string& argument, const std::vector<int64_t>& splits,
                   const at::Tensor& x, int size) {
  const int64_t rows = x.dim() == 0 ? 1 : x.size(0);
  if (splits.empty()) {
    if (x.dim() > 0 && rows % size == 0) return;
    Wrong("D6", op, argument, Shape(x),
          "of a dimension 0 that divides by the " + std::to_string(size) + " ranks of the group",
          "Say how it is cut: split sizes");
  }
  RequireCount(op, argument + " splits", splits.size(), size);
  int64_t sum = 0;
  for (int64_t split : splits) {
    if (split < 0) Wrong("D6", op, argument + " splits", std::to_string(split), "0 or more", "");
    sum += split;
  }
  if (sum == rows && x.dim() > 0) return;
  Wrong("D6", op, argument + " splits", "a sum of " + std::to_string(sum),
        std::to_string(rows) + ", the rows of " + Shape(x), "Cut all of it");
}

std::vector<int64_t> Even(const at::Tensor& x, int size) {
  return std::vector<int64_t>(size, x.size(0) / size);
}

}  // namespace

XlaBackend::XlaBackend(std::unique_ptr<Transport> transport, Timeout timeout)
    : c10d::Backend(transport->group().rank, transport->group().size()),
      transport_(std::move(transport)),
      options_(c10::make_intrusive<Options>("xla_cc", timeout)) {
  options_->group_name = transport_->group().name;
}

void XlaBackend::setTimeout(std::chrono::milliseconds timeout) { options_->timeout = timeout; }

Timeout XlaBackend::Limit(Timeout of_call) const {
  return of_call == c10d::kUnsetTimeout ? options_->timeout : of_call;
}

// Calls are issued one by one all the same: what coalescing gives is one Work for all, and one
// step.
void XlaBackend::startCoalescing() {
  coalesced_.emplace();
  transport_->Hold();
}

WorkPtr XlaBackend::endCoalescing() {
  if (!coalesced_) throw BadValue("endCoalescing: nothing was started");
  std::vector<WorkPtr> works = std::move(*coalesced_);
  coalesced_.reset();
  transport_->Release();
  return c10::make_intrusive<CoalescedWork>(std::move(works));
}

WorkPtr XlaBackend::Kept(WorkPtr work) {
  if (coalesced_) coalesced_->push_back(work);
  return work;
}

WorkPtr XlaBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  RequireOurs("broadcast", "tensors", tensors);
  RequireRank("broadcast", "src", opts.rootRank, size_);
  ++issued_;
  return Kept(transport_->Broadcast(tensors, static_cast<int>(opts.rootRank), Limit(opts.timeout)));
}

WorkPtr XlaBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  RequireOurs("allreduce", "tensors", tensors);
  ++issued_;
  return Kept(transport_->AllReduce(tensors, opts.reduceOp, Limit(opts.timeout)));
}

WorkPtr XlaBackend::allreduce_coalesced(Tensors& tensors,
                                        const c10d::AllreduceCoalescedOptions& opts) {
  return allreduce(tensors, opts);
}

WorkPtr XlaBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  RequireOurs("reduce", "tensors", tensors);
  RequireRank("reduce", "dst", opts.rootRank, size_);
  ++issued_;
  return Kept(transport_->Reduce(tensors, opts.reduceOp, static_cast<int>(opts.rootRank),
                                 Limit(opts.timeout)));
}

WorkPtr XlaBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) {
  constexpr const char* kOp = "allgather";
  RequireOurs(kOp, "input", inputs);
  if (outputs.size() != inputs.size()) {
    Wrong("D3", kOp, "output", std::to_string(outputs.size()) + " lists",
          "a list for each of " + std::to_string(inputs.size()) + " inputs", "Pass as many");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    RequireCount(kOp, "output", outputs[i].size(), size_);
    RequireOurs(kOp, "output", outputs[i]);
    for (const at::Tensor& output : outputs[i]) RequireType(kOp, "output", output, inputs[i]);
    RequireElements(kOp, "output[" + std::to_string(rank_) + "]", outputs[i][rank_],
                    inputs[i].numel(), "as the input of this rank");
  }
  ++issued_;
  return Kept(transport_->AllGather(outputs, inputs, Limit(opts.timeout)));
}

WorkPtr XlaBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& opts) {
  // Here by rank, then by input.
  RequireCount("allgather_coalesced", "output", outputs.size(), size_);
  std::vector<Tensors> by_input(inputs.size());
  for (const Tensors& of_rank : outputs) {
    if (of_rank.size() != inputs.size()) {
      Wrong("D3", "allgather_coalesced", "output", std::to_string(of_rank.size()) + " tensors",
            "one for each of " + std::to_string(inputs.size()) + " inputs", "Pass as many");
    }
    for (size_t i = 0; i < inputs.size(); ++i) by_input[i].push_back(of_rank[i]);
  }
  return allgather(by_input, inputs, opts);
}

WorkPtr XlaBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& opts) {
  constexpr const char* kOp = "allgather_into_tensor";
  RequireOurs(kOp, "input", inputs);
  RequireOurs(kOp, "output", outputs);
  if (outputs.size() != inputs.size()) {
    Wrong("D3", kOp, "output", std::to_string(outputs.size()) + " tensors",
          "one for each of " + std::to_string(inputs.size()) + " inputs", "Pass as many");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    RequireType(kOp, "output", outputs[i], inputs[i]);
    RequireElements(kOp, "output", outputs[i], inputs[i].numel() * size_,
                    std::to_string(size_) + " times the input's");
  }
  ++issued_;
  return Kept(transport_->AllGatherInto(outputs, inputs, Limit(opts.timeout)));
}

WorkPtr XlaBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                    const c10d::AllgatherOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr XlaBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::GatherOptions& opts) {
  constexpr const char* kOp = "gather";
  RequireOurs(kOp, "input", inputs);
  const at::Tensor& input = Only(kOp, "input", inputs);
  RequireRank(kOp, "dst", opts.rootRank, size_);
  Tensors of_root;
  if (rank_ == opts.rootRank) {
    of_root = Only(kOp, "output", outputs);
    RequireCount(kOp, "output", of_root.size(), size_);
    RequireOurs(kOp, "output", of_root);
    for (const at::Tensor& output : of_root) {
      RequireType(kOp, "output", output, input);
      RequireElements(kOp, "output", output, input.numel(), "as the input");
    }
  } else if (!outputs.empty() && !outputs[0].empty()) {
    Wrong("D3", kOp, "output", "a list", "empty but on the rank dst", "Pass None here");
  }
  ++issued_;
  return Kept(
      transport_->Gather(of_root, input, static_cast<int>(opts.rootRank), Limit(opts.timeout)));
}

WorkPtr XlaBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                            const c10d::ScatterOptions& opts) {
  constexpr const char* kOp = "scatter";
  RequireOurs(kOp, "output", outputs);
  const at::Tensor& output = Only(kOp, "output", outputs);
  RequireRank(kOp, "src", opts.rootRank, size_);
  Tensors of_root;
  if (rank_ == opts.rootRank) {
    of_root = Only(kOp, "input", inputs);
    RequireCount(kOp, "input", of_root.size(), size_);
    RequireOurs(kOp, "input", of_root);
    for (const at::Tensor& input : of_root) {
      RequireType(kOp, "input", input, output);
      RequireElements(kOp, "input", input, output.numel(), "as the output");
    }
  } else if (!inputs.empty() && !inputs[0].empty()) {
    Wrong("D3", kOp, "input", "a list", "empty but on the rank src", "Pass None here");
  }
  ++issued_;
  return Kept(
      transport_->Scatter(output, of_root, static_cast<int>(opts.rootRank), Limit(opts.timeout)));
}

WorkPtr XlaBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kOp = "reduce_scatter";
  RequireOurs(kOp, "output", outputs);
  if (outputs.size() != inputs.size()) {
    Wrong("D3", kOp, "input", std::to_string(inputs.size()) + " lists",
          "a list for each of " + std::to_string(outputs.size()) + " outputs", "Pass as many");
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    RequireCount(kOp, "input", inputs[i].size(), size_);
    RequireOurs(kOp, "input", inputs[i]);
    for (const at::Tensor& input : inputs[i]) RequireType(kOp, "input", input, outputs[i]);
    RequireElements(kOp, "output", outputs[i], inputs[i][rank_].numel(),
                    "as the input for this rank");
  }
  ++issued_;
  return Kept(transport_->ReduceScatter(outputs, inputs, opts.reduceOp, Limit(opts.timeout)));
}

WorkPtr XlaBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kOp = "reduce_scatter_tensor";
  RequireOurs(kOp, "input", inputs);
  RequireOurs(kOp, "output", outputs);
  if (outputs.size() != inputs.size()) {
    Wrong("D3", kOp, "output", std::to_string(outputs.size()) + " tensors",
          "one for each of " + std::to_string(inputs.size()) + " inputs", "Pass as many");
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    RequireType(kOp, "output", outputs[i], inputs[i]);
    RequireElements(kOp, "input", inputs[i], outputs[i].numel() * size_,
                    std::to_string(size_) + " times the output's");
  }
  ++issued_;
  return Kept(transport_->ReduceScatterInto(outputs, inputs, opts.reduceOp, Limit(opts.timeout)));
}

WorkPtr XlaBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                         const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr XlaBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                  std::vector<int64_t>& output_splits,
                                  std::vector<int64_t>& input_splits,
                                  const c10d::AllToAllOptions& opts) {
  constexpr const char* kOp = "alltoall_base";
  RequireOurs(kOp, "output", output);
  RequireOurs(kOp, "input", input);
  RequireType(kOp, "output", output, input);
  RequireSplits(kOp, "output", output_splits, output, size_);
  RequireSplits(kOp, "input", input_splits, input, size_);
  ++issued_;
  if (output_splits.empty() && input_splits.empty()) {
    RequireElements(kOp, "output", output, input.numel(), "as the input");
    return Kept(transport_->AllToAllSingle(output, input, {}, {}, Limit(opts.timeout)));
  }
  // Whether sizes are told is a matter of each rank; the others may tell theirs.
  return Kept(transport_->AllToAllSingle(
      output, input, output_splits.empty() ? Even(output, size_) : output_splits,
      input_splits.empty() ? Even(input, size_) : input_splits, Limit(opts.timeout)));
}

WorkPtr XlaBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  constexpr const char* kOp = "alltoall";
  RequireCount(kOp, "output", outputs.size(), size_);
  RequireCount(kOp, "input", inputs.size(), size_);
  RequireOurs(kOp, "output", outputs);
  RequireOurs(kOp, "input", inputs);
  for (const at::Tensor& x : outputs) RequireType(kOp, "output", x, inputs[0]);
  for (const at::Tensor& x : inputs) RequireType(kOp, "input", x, inputs[0]);
  RequireElements(kOp, "output[" + std::to_string(rank_) + "]", outputs[rank_],
                  inputs[rank_].numel(), "as what this rank sends to itself");
  ++issued_;
  return Kept(transport_->AllToAll(outputs, inputs, Limit(opts.timeout)));
}

WorkPtr XlaBackend::send(Tensors& tensors, int to, int tag) {
  RequireOurs("send", "tensor", tensors);
  RequireRank("send", "dst", to, size_);
  return Kept(transport_->Send(Only("send", "tensor", tensors), to, tag, options_->timeout));
}

WorkPtr XlaBackend::recv(Tensors& tensors, int from, int tag) {
  RequireOurs("recv", "tensor", tensors);
  RequireRank("recv", "src", from, size_);
  return Kept(transport_->Recv(Only("recv", "tensor", tensors), from, tag, options_->timeout));
}

WorkPtr XlaBackend::recvAnysource(Tensors& tensors, int tag) {
  RequireOurs("recv", "tensor", tensors);
  return Kept(transport_->RecvAnySource(Only("recv", "tensor", tensors), tag, options_->timeout));
}

WorkPtr XlaBackend::barrier(const c10d::BarrierOptions& opts) {
  ++issued_;
  return Kept(transport_->Barrier(Limit(opts.timeout)));
}

void XlaBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool) {
  ++issued_;
  transport_->Barrier(Limit(opts.timeout))->wait(Limit(opts.timeout));
}

}  // namespace xla_cc
