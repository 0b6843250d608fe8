#include "torch_xla_cc/distributed/backend.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>

#include "lowering/errors.h"
#include "torch_xla_cc/arguments.h"
#include "torch_xla_cc/distributed/buffers.h"
#include "torch_xla_cc/distributed/host_p2p.h"
#include "torch_xla_cc/distributed/recorder.h"
#include "torch_xla_cc/distributed/reductions.h"
#include "torch_xla_cc/distributed/unlocked.h"
#include "torch_xla_cc/distributed/work.h"
#include "torch_xla_cc/site.h"

namespace xla_cc {
namespace {

[[noreturn]] void Wrong(const std::string& label, const std::string& op,
                        const std::string& argument, const std::string& value,
                        const std::string& required, const std::string& remedy) {
  throw BadValue(Refuse({label, op, argument, value, required, remedy}).message());
}

// (D1) a dense tensor on an XLA device.
void RequireOurs(const char* op, const std::string& argument, const at::Tensor& x) {
  if (x.defined() && x.device().type() == at::kXLA && x.layout() == at::kStrided) return;
  Wrong("D1", op, argument, x.defined() ? ShapeText(x) + " on " + x.device().str() : "undefined",
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
  Wrong("D2", op, argument, ShapeText(x), "of the dtype of the input, " + DtypeText(like),
        "Allocate it with that dtype");
}

// (D3) a list with an entry for each of something: a rank, an input.
void RequireCount(const char* op, const std::string& argument, size_t count, size_t wanted,
                  const char* of) {
  if (count == wanted) return;
  Wrong("D3", op, argument, "of length " + std::to_string(count),
        "of length " + std::to_string(wanted) + ", one for each " + of, "Pass as many");
}
constexpr const char* kRank = "rank of the group";

// (D4) elements of one tensor, by those of another.
void RequireElements(const char* op, const std::string& argument, const at::Tensor& x,
                     int64_t elements, const std::string& why) {
  if (x.numel() == elements) return;
  Wrong("D4", op, argument, ShapeText(x), "of " + std::to_string(elements) + " elements, " + why,
        "Allocate it with that size");
}

// (D5) a rank of the group.
void RequireRank(const char* op, const std::string& argument, int64_t rank, int size) {
  if (rank >= 0 && rank < size) return;
  Wrong("D5", op, argument, std::to_string(rank),
        "a rank of the group, 0 to " + std::to_string(size - 1), "Name one of them");
}

// (D5) a tag that the host transport can tell from its own.
void RequireTag(const char* op, int tag) {
  if (tag >= 0 && tag <= kLargestTag) return;
  Wrong("D5", op, "tag", std::to_string(tag), "0 to " + std::to_string(kLargestTag),
        "Choose another");
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
    Wrong("D6", op, argument, ShapeText(x),
          "of a dimension 0 that divides by the " + std::to_string(size) + " ranks of the group",
          "Say how it is cut: split sizes");
  }
  RequireCount(op, argument + " splits", splits.size(), size, kRank);
  int64_t sum = 0;
  for (int64_t split : splits) {
    if (split < 0) Wrong("D6", op, argument + " splits", std::to_string(split), "0 or more", "");
    sum += split;
  }
  if (sum == rows && x.dim() > 0) return;
  Wrong("D6", op, argument + " splits", "a sum of " + std::to_string(sum),
        std::to_string(rows) + ", the rows of " + ShapeText(x), "Cut all of it");
}

std::vector<int64_t> Even(const at::Tensor& x, int size) {
  return std::vector<int64_t>(size, x.size(0) / size);
}

// (R0) to (R4) for each tensor.
void RequireReduction(const char* op, const Tensors& xs, const c10d::ReduceOp& kind) {
  const Reduction reduction = ReductionOf(kind);
  for (size_t i = 0; i < xs.size(); ++i) {
    const Status status = reduction.Verify(op, ShapeOf(op, i, xs[i]));
    if (!status.ok()) throw BadValue(status.message());
  }
}

// The list of the root, and none elsewhere, of tensors like the one that each rank has.
Tensors OfRoot(const char* op, const char* argument, const std::vector<Tensors>& lists,
               const at::Tensor& each, bool is_root, int size) {
  if (!is_root) {
    if (lists.empty() || lists[0].empty()) return {};
    Wrong("D3", op, argument, "a list", "empty but on the root", "Pass None here");
  }
  const Tensors& list = Only(op, argument, lists);
  RequireCount(op, argument, list.size(), size, kRank);
  RequireOurs(op, argument, list);
  for (const at::Tensor& x : list) {
    RequireType(op, argument, x, each);
    RequireElements(op, argument, x, each.numel(), "as the tensor of each rank");
  }
  return list;
}

// One tensor for each, whose elements are those of all ranks' parts.
void RequireWhole(const char* op, const char* argument, const Tensors& wholes, const Tensors& parts,
                  int size) {
  RequireOurs(op, "input", parts);
  RequireOurs(op, "output", wholes);
  RequireCount(op, argument, wholes.size(), parts.size(), "part");
  for (size_t i = 0; i < wholes.size(); ++i) {
    RequireType(op, argument, wholes[i], parts[i]);
    RequireElements(op, argument, wholes[i], parts[i].numel() * size,
                    std::to_string(size) + " times those of a rank's part");
  }
}

std::string Text(const Tensors& xs) {
  std::string text;
  for (size_t i = 0; i < xs.size();) {
    const std::string shape = ShapeText(xs[i]);
    size_t end = i + 1;
    while (end < xs.size() && ShapeText(xs[end]) == shape) ++end;
    text += (i > 0 ? ", " : "") + shape;
    if (end - i > 1) text += " x " + std::to_string(end - i);
    i = end;
  }
  return text;
}

std::string Text(const std::vector<Tensors>& lists) {
  std::string text;
  for (const Tensors& list : lists) text += (text.empty() ? "[" : ", [") + Text(list) + "]";
  return text;
}

std::string RowText(const at::Tensor& x) {
  return DtypeText(x) + "[" + hlo::ToString(x.sizes().slice(1).vec()) + "]";
}

}  // namespace

bool& WaitsAtOnce() {
  thread_local bool waits = false;
  return waits;
}

XlaBackend::XlaBackend(std::unique_ptr<Transport> transport, Timeout timeout)
    : c10d::Backend(transport->group().rank, transport->group().size()),
      transport_(std::move(transport)),
      options_(c10::make_intrusive<Options>("xla_cc", timeout)) {
  options_->group_name = transport_->group().name;
}

XlaBackend::~XlaBackend() {
  Unlocked([this] { transport_.reset(); });
}

void XlaBackend::setTimeout(std::chrono::milliseconds timeout) { options_->timeout = timeout; }

std::string XlaBackend::RankText(int64_t rank) const {
  return RankName(transport_->group(), static_cast<int>(rank));
}

// Collectives are issued one by one all the same: what coalescing gives is one Work for all, and
// one step.
void XlaBackend::startCoalescing() {
  coalesced_.emplace();
  transport_->Hold();
}

WorkPtr XlaBackend::endCoalescing() {
  if (!coalesced_) throw BadValue("endCoalescing: nothing was started");
  const auto ended = c10::make_scope_exit([this] {
    coalesced_.reset();
    ends_.clear();
    end_tensors_.clear();
  });
  if (!ends_.empty()) {
    const auto call = Begin("batch_isend_irecv()", options_->timeout, true);
    call->meets = true;
    call->ends = ends_;
    Issue(call, true, [&] { return transport_->Batch(call, end_tensors_); });
  }
  transport_->Release();
  return c10::make_intrusive<CoalescedWork>(std::move(*coalesced_));
}

CallPtr XlaBackend::Begin(std::string what, Timeout timeout, bool async) const {
  auto call = std::make_shared<GroupCall>();
  call->what = std::move(what);
  call->timeout = timeout == c10d::kUnsetTimeout ? options_->timeout : timeout;
  call->async = async;
  call->group = transport_->group().name;
  call->rank = transport_->group().own();
  call->issued_us = NowUs();
  const py::gil_scoped_acquire locked;
  call->site = CurrentSite();
  return call;
}

template <class Start>
WorkPtr XlaBackend::Issue(const CallPtr& call, bool collective, const Start& start) {
  transport_->health().ThrowIfBroken();
  if (Capturing()) return start();
  if (collective) call->number = ++issued_;
  Recorder::Get().Add(call);
  try {
    transport_->Announce(call);
    WorkPtr work = start();
    if (WaitsAtOnce()) Unlocked([&] { work->wait(kNoTimeout); });
    if (coalesced_) coalesced_->push_back(work);
    return work;
  } catch (const RanksDisagree&) {
    call->End(GroupCall::State::kFailed);
    transport_->health().Break(std::current_exception());
    transport_->Forget();
    throw;
  } catch (...) {
    call->End(GroupCall::State::kFailed);
    throw;
  }
}

WorkPtr XlaBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  RequireOurs("broadcast", "tensors", tensors);
  RequireRank("broadcast", "src", opts.rootRank, size_);
  const auto call = Begin("broadcast(" + Text(tensors) + ", src " + RankText(opts.rootRank) + ")",
                          opts.timeout, opts.asyncOp);
  const int root = static_cast<int>(opts.rootRank);
  return Issue(call, true, [&] { return transport_->Broadcast(call, tensors, root); });
}

WorkPtr XlaBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  RequireOurs("all_reduce", "tensors", tensors);
  RequireReduction("all_reduce", tensors, opts.reduceOp);
  const auto call = Begin("all_reduce(" + Text(tensors) + ", " + TextOf(opts.reduceOp) + ")",
                          opts.timeout, opts.asyncOp);
  return Issue(call, true, [&] { return transport_->AllReduce(call, tensors, opts.reduceOp); });
}

WorkPtr XlaBackend::allreduce_coalesced(Tensors& tensors,
                                        const c10d::AllreduceCoalescedOptions& opts) {
  return allreduce(tensors, opts);
}

WorkPtr XlaBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  RequireOurs("reduce", "tensors", tensors);
  RequireRank("reduce", "dst", opts.rootRank, size_);
  RequireReduction("reduce", tensors, opts.reduceOp);
  const auto call = Begin("reduce(" + Text(tensors) + ", " + TextOf(opts.reduceOp) + ", dst " +
                              RankText(opts.rootRank) + ")",
                          opts.timeout, opts.asyncOp);
  const int root = static_cast<int>(opts.rootRank);
  return Issue(call, true, [&] { return transport_->Reduce(call, tensors, opts.reduceOp, root); });
}

WorkPtr XlaBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) {
  constexpr const char* kOp = "all_gather";
  RequireOurs(kOp, "input", inputs);
  RequireCount(kOp, "output", outputs.size(), inputs.size(), "input");
  for (size_t i = 0; i < inputs.size(); ++i) {
    RequireCount(kOp, "output", outputs[i].size(), size_, kRank);
    RequireOurs(kOp, "output", outputs[i]);
    for (const at::Tensor& output : outputs[i]) RequireType(kOp, "output", output, inputs[i]);
    RequireElements(kOp, "output[" + std::to_string(rank_) + "]", outputs[i][rank_],
                    inputs[i].numel(), "as the input of this rank");
  }
  Tensors buffers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    RequireApart(kOp, inputs[i], outputs[i], rank_);
    const at::Tensor buffer = BufferOf(kOp, "output", outputs[i]);
    if (buffer.defined() && AllAlike(outputs[i])) buffers.push_back(buffer);
  }
  const bool into = buffers.size() == inputs.size();
  const auto call = Begin("all_gather(" + Text(outputs) + ")", opts.timeout, opts.asyncOp);
  return Issue(call, true, [&] {
    return into ? transport_->AllGatherInto(call, buffers, inputs)
                : transport_->AllGather(call, outputs, inputs);
  });
}

WorkPtr XlaBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& opts) {
  // Here by rank, then by input.
  RequireCount("all_gather_coalesced", "output", outputs.size(), size_, kRank);
  std::vector<Tensors> by_input(inputs.size());
  for (const Tensors& of_rank : outputs) {
    RequireCount("all_gather_coalesced", "output", of_rank.size(), inputs.size(), "input");
    for (size_t i = 0; i < inputs.size(); ++i) by_input[i].push_back(of_rank[i]);
  }
  return allgather(by_input, inputs, opts);
}

WorkPtr XlaBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& opts) {
  RequireWhole("all_gather_into_tensor", "output", outputs, inputs, size_);
  const auto call =
      Begin("all_gather_into_tensor(" + Text(inputs) + ")", opts.timeout, opts.asyncOp);
  return Issue(call, true, [&] { return transport_->AllGatherInto(call, outputs, inputs); });
}

WorkPtr XlaBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                    const c10d::AllgatherOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr XlaBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::GatherOptions& opts) {
  RequireOurs("gather", "input", inputs);
  const at::Tensor& input = Only("gather", "input", inputs);
  RequireRank("gather", "dst", opts.rootRank, size_);
  const Tensors list = OfRoot("gather", "output", outputs, input, rank_ == opts.rootRank, size_);
  const auto call = Begin("gather(" + ShapeText(input) + ", dst " + RankText(opts.rootRank) + ")",
                          opts.timeout, opts.asyncOp);
  const int root = static_cast<int>(opts.rootRank);
  return Issue(call, true, [&] { return transport_->Gather(call, list, input, root); });
}

WorkPtr XlaBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                            const c10d::ScatterOptions& opts) {
  RequireOurs("scatter", "output", outputs);
  const at::Tensor& output = Only("scatter", "output", outputs);
  RequireRank("scatter", "src", opts.rootRank, size_);
  const Tensors list = OfRoot("scatter", "input", inputs, output, rank_ == opts.rootRank, size_);
  const auto call = Begin("scatter(" + ShapeText(output) + ", src " + RankText(opts.rootRank) + ")",
                          opts.timeout, opts.asyncOp);
  const int root = static_cast<int>(opts.rootRank);
  return Issue(call, true, [&] { return transport_->Scatter(call, output, list, root); });
}

WorkPtr XlaBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kOp = "reduce_scatter";
  RequireOurs(kOp, "output", outputs);
  RequireCount(kOp, "input", inputs.size(), outputs.size(), "output");
  for (size_t i = 0; i < outputs.size(); ++i) {
    RequireCount(kOp, "input", inputs[i].size(), size_, kRank);
    RequireOurs(kOp, "input", inputs[i]);
    for (const at::Tensor& input : inputs[i]) RequireType(kOp, "input", input, outputs[i]);
    RequireElements(kOp, "output", outputs[i], inputs[i][rank_].numel(),
                    "as the input for this rank");
  }
  RequireReduction(kOp, outputs, opts.reduceOp);
  Tensors buffers;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor buffer = BufferOf(kOp, "input", inputs[i]);
    if (buffer.defined() && AllAlike(inputs[i])) buffers.push_back(buffer);
  }
  const bool into = buffers.size() == outputs.size();
  const auto call = Begin("reduce_scatter(" + Text(inputs) + ", " + TextOf(opts.reduceOp) + ")",
                          opts.timeout, opts.asyncOp);
  return Issue(call, true, [&] {
    return into ? transport_->ReduceScatterInto(call, outputs, buffers, opts.reduceOp)
                : transport_->ReduceScatter(call, outputs, inputs, opts.reduceOp);
  });
}

WorkPtr XlaBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kOp = "reduce_scatter_tensor";
  RequireWhole(kOp, "input", inputs, outputs, size_);
  RequireReduction(kOp, outputs, opts.reduceOp);
  const auto call =
      Begin("reduce_scatter_tensor(" + Text(outputs) + ", " + TextOf(opts.reduceOp) + ")",
            opts.timeout, opts.asyncOp);
  return Issue(call, true,
               [&] { return transport_->ReduceScatterInto(call, outputs, inputs, opts.reduceOp); });
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
  constexpr const char* kOp = "all_to_all_single";
  RequireOurs(kOp, "output", output);
  RequireOurs(kOp, "input", input);
  RequireType(kOp, "output", output, input);
  RequireSplits(kOp, "output", output_splits, output, size_);
  RequireSplits(kOp, "input", input_splits, input, size_);
  if (output_splits.empty() && input_splits.empty()) {
    RequireElements(kOp, "output", output, input.numel(), "as the input");
    const auto call =
        Begin("all_to_all_single(" + ShapeText(input) + ")", opts.timeout, opts.asyncOp);
    return Issue(call, true,
                 [&] { return transport_->AllToAllSingle(call, output, input, {}, {}); });
  }
  if (output.sizes().slice(1) != input.sizes().slice(1)) {
    Wrong("D4", kOp, "output", ShapeText(output),
          "of rows as those of the input, " + RowText(input), "Allocate it with that shape");
  }
  const auto call = Begin("all_to_all_single(rows of " + RowText(input) + ", split sizes)",
                          opts.timeout, opts.asyncOp);
  call->meets = true;
  call->sent = input_splits.empty() ? Even(input, size_) : input_splits;
  call->received = output_splits.empty() ? Even(output, size_) : output_splits;
  return Issue(call, true, [&] {
    return transport_->AllToAllSingle(call, output, input, call->received, call->sent);
  });
}

WorkPtr XlaBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  constexpr const char* kOp = "all_to_all";
  RequireCount(kOp, "output", outputs.size(), size_, kRank);
  RequireCount(kOp, "input", inputs.size(), size_, kRank);
  RequireOurs(kOp, "output", outputs);
  RequireOurs(kOp, "input", inputs);
  for (const at::Tensor& x : outputs) RequireType(kOp, "output", x, inputs[0]);
  for (const at::Tensor& x : inputs) RequireType(kOp, "input", x, inputs[0]);
  RequireElements(kOp, "output[" + std::to_string(rank_) + "]", outputs[rank_],
                  inputs[rank_].numel(), "as what this rank sends to itself");
  const auto call = Begin("all_to_all(" + DtypeText(inputs[0]) + ")", opts.timeout, opts.asyncOp);
  call->meets = true;
  call->sent = Elements(inputs);
  call->received = Elements(outputs);
  return Issue(call, true, [&] { return transport_->AllToAll(call, outputs, inputs); });
}

template <class Start>
WorkPtr XlaBackend::PointToPoint(const char* op, const at::Tensor& x, int peer, int tag,
                                 const Start& start) {
  const bool sends = op == std::string("send");
  const std::string whom = peer == kAnySource ? "any rank" : RankText(peer);
  const auto call = Begin(std::string(op) + "(" + ShapeText(x) + (sends ? ", dst " : ", src ") +
                              whom + ", tag " + std::to_string(tag) + ")",
                          options_->timeout, true);
  call->part = ShapeText(x);
  if (!coalesced_ || peer == kAnySource || !transport_->TakesBatches()) {
    return Issue(call, false, [&] { return start(call); });
  }
  const std::string text = call->what + " at " + SaidOf(*call).site;
  const auto dtype = static_cast<int64_t>(x.scalar_type());
  ends_.push_back({sends, peer, tag, dtype, x.sizes().vec(), text});
  end_tensors_.push_back(x);
  return Issued({x});
}

WorkPtr XlaBackend::send(Tensors& tensors, int to, int tag) {
  RequireOurs("send", "tensor", tensors);
  const at::Tensor& x = Only("send", "tensor", tensors);
  RequireRank("send", "dst", to, size_);
  RequireTag("send", tag);
  return PointToPoint("send", x, to, tag,
                      [&](const CallPtr& call) { return transport_->Send(call, x, to, tag); });
}

WorkPtr XlaBackend::recv(Tensors& tensors, int from, int tag) {
  RequireRank("recv", "src", from, size_);
  return Receive(tensors, from, tag);
}

WorkPtr XlaBackend::recvAnysource(Tensors& tensors, int tag) {
  return Receive(tensors, kAnySource, tag);
}

WorkPtr XlaBackend::Receive(const Tensors& tensors, int from, int tag) {
  RequireOurs("recv", "tensor", tensors);
  const at::Tensor& x = Only("recv", "tensor", tensors);
  RequireTag("recv", tag);
  return PointToPoint("recv", x, from, tag,
                      [&](const CallPtr& call) { return transport_->Recv(call, x, from, tag); });
}

WorkPtr XlaBackend::barrier(const c10d::BarrierOptions& opts) {
  const auto call = Begin("barrier()", opts.timeout, opts.asyncOp);
  call->meets = true;
  return Issue(call, true, [&] { return transport_->Barrier(call); });
}

// All that do not come are named, whether asked to or not.
void XlaBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool) {
  barrier(opts)->wait(kNoTimeout);
}

}  // namespace xla_cc
