#include "torch_xla_cc/distributed/backend.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>

#include "torch_xla_cc/call_site.h"
#include "torch_xla_cc/distributed/buffers.h"
#include "torch_xla_cc/distributed/call_mode.h"
#include "torch_xla_cc/distributed/call_text.h"
#include "torch_xla_cc/distributed/profiler_events.h"
#include "torch_xla_cc/distributed/reductions.h"
#include "torch_xla_cc/distributed/verify.h"
#include "torch_xla_cc/distributed/work.h"
#include "torch_xla_cc/dtypes.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/graph/target.h"
#include "torch_xla_cc/groupcall/flight_recorder.h"

namespace xla_cc {
namespace {

std::vector<int64_t> Even(const at::Tensor& x, int size) {
  return std::vector<int64_t>(size, x.size(0) / size);
}

Tensors OfRank(const std::vector<Tensors>& lists, int rank) {
  Tensors own;
  for (const Tensors& list : lists) own.push_back(list[rank]);
  return own;
}

}  // namespace

XlaBackend::XlaBackend(std::unique_ptr<Transport> transport, std::unique_ptr<Transport> on_paper,
                       Timeout timeout)
    : c10d::Backend(transport->group().rank, transport->group().size()),
      group_(transport->group()),
      transport_(std::move(transport)),
      on_paper_(std::move(on_paper)),
      options_(c10::make_intrusive<Options>("xla_cc", Bounded(timeout))) {
  options_->group_name = group_.name;
}

bool XlaBackend::OnPaper() const { return on_paper_ && ThreadTarget(); }

Transport& XlaBackend::carrier() const { return OnPaper() ? *on_paper_ : *transport_; }

XlaBackend::~XlaBackend() {
  Unlocked([this] { transport_.reset(); });
}

void XlaBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = Bounded(timeout);
}

std::string XlaBackend::RankText(int64_t rank) const {
  return RankName(group_, static_cast<int>(rank));
}

// Collectives are issued one by one: what coalescing gives is one Work for all, and one step.
void XlaBackend::startCoalescing() {
  StopCoalescing();  // one that an error has left
  coalesced_.emplace();
  carrier().Hold();
}

bool XlaBackend::StopCoalescing() noexcept {
  ends_.clear();
  end_tensors_.clear();
  transport_->StopHolding();
  if (on_paper_) on_paper_->StopHolding();
  return std::exchange(coalesced_, std::nullopt).has_value();
}

WorkPtr XlaBackend::endCoalescing() {
  if (!coalesced_) throw BadValue("endCoalescing: nothing was started, or an error has ended it");
  const auto ended = c10::make_scope_exit([this] { StopCoalescing(); });
  if (!ends_.empty()) {
    const auto call = Begin("batch_isend_irecv", "", end_tensors_, options_->timeout, true);
    call->meets = true;
    call->ends = ends_;
    Issue(call, true, [&] { return carrier().Batch(call, end_tensors_); });
  }
  carrier().Release();
  return c10::make_intrusive<CoalescedWork>(std::move(*coalesced_));
}

CallPtr XlaBackend::Begin(const char* op, const std::string& rest, const Tensors& inputs,
                          Timeout timeout, bool async, const char* event) const {
  auto call = std::make_shared<GroupCall>();
  call->what = std::string(op) + "(" + rest + ")";
  call->end_event = BeginEvent(event == nullptr ? op : event, inputs);
  call->timeout = timeout == c10d::kUnsetTimeout ? options_->timeout : Bounded(timeout);
  call->async = async;
  call->group = group_.name;
  call->rank = group_.own();
  call->issued_us = NowUs();
  const py::gil_scoped_acquire locked;
  call->site = CurrentSite();
  return call;
}

template <class Start>
WorkPtr XlaBackend::Issue(const CallPtr& call, bool collective, const Start& start) {
  carrier().health().ThrowIfBroken();
  if (CallMode::OfThread().captures || OnPaper()) return start();  // no call of this rank yet
  carrier().Admit(call);
  if (collective) call->number = ++issued_;
  Recorder::Get().Add(call);
  try {
    carrier().Announce(call);
    WorkPtr work = start();
    if (CallMode::OfThread().waits_at_once) Unlocked([&] { work->wait(kNoTimeout); });
    if (coalesced_) coalesced_->push_back(work);
    return work;
  } catch (const RanksDisagree&) {
    call->End(GroupCall::State::kFailed);
    carrier().health().Break(std::current_exception());
    carrier().Forget();
    throw;
  } catch (...) {
    call->End(GroupCall::State::kFailed);
    if (collective && !call->is_counted) carrier().Skip();
    throw;
  }
}

WorkPtr XlaBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  RequireWritable("broadcast", "tensors", tensors);
  RequireRank("broadcast", "src", opts.rootRank, size_);
  const auto call = Begin("broadcast", Text(tensors) + ", src " + RankText(opts.rootRank), tensors,
                          opts.timeout, opts.asyncOp);
  const int root = static_cast<int>(opts.rootRank);
  return Issue(call, true, [&] { return carrier().Broadcast(call, tensors, root); });
}

WorkPtr XlaBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  RequireWritable("all_reduce", "tensors", tensors);
  RequireReduction("all_reduce", tensors, opts.reduceOp);
  const auto call = Begin("all_reduce", Text(tensors) + ", " + TextOf(opts.reduceOp), tensors,
                          opts.timeout, opts.asyncOp);
  return Issue(call, true, [&] { return carrier().AllReduce(call, tensors, opts.reduceOp); });
}

WorkPtr XlaBackend::allreduce_coalesced(Tensors& tensors,
                                        const c10d::AllreduceCoalescedOptions& opts) {
  return allreduce(tensors, opts);
}

WorkPtr XlaBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  RequireWritable("reduce", "tensors", tensors);
  RequireRank("reduce", "dst", opts.rootRank, size_);
  RequireReduction("reduce", tensors, opts.reduceOp);
  const auto call = Begin(
      "reduce", Text(tensors) + ", " + TextOf(opts.reduceOp) + ", dst " + RankText(opts.rootRank),
      tensors, opts.timeout, opts.asyncOp);
  const int root = static_cast<int>(opts.rootRank);
  return Issue(call, true, [&] { return carrier().Reduce(call, tensors, opts.reduceOp, root); });
}

WorkPtr XlaBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) {
  constexpr const char* kOp = "all_gather";
  RequireOurs(kOp, "input", inputs);
  RequireCount(kOp, "output", outputs.size(), inputs.size(), "input");
  for (size_t i = 0; i < inputs.size(); ++i) {
    RequireCount(kOp, "output", outputs[i].size(), size_, kRank);
    RequireWritable(kOp, "output", outputs[i]);
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
  const auto call = Begin(kOp, Text(outputs) + Unlike(" of ", inputs, OfRank(outputs, rank_)),
                          inputs, opts.timeout, opts.asyncOp);
  return Issue(call, true, [&] {
    return into ? carrier().AllGatherInto(call, buffers, inputs)
                : carrier().AllGather(call, outputs, inputs);
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
  constexpr const char* kOp = "all_gather_into_tensor";
  RequireWhole(kOp, "output", outputs, inputs, size_);
  const auto call = Begin(kOp, Text(inputs) + UnlikeWhole(" into ", outputs, inputs), inputs,
                          opts.timeout, opts.asyncOp);
  return Issue(call, true, [&] { return carrier().AllGatherInto(call, outputs, inputs); });
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
  const auto call = Begin("gather", ShapeText(input) + ", dst " + RankText(opts.rootRank), inputs,
                          opts.timeout, opts.asyncOp);
  const int root = static_cast<int>(opts.rootRank);
  return Issue(call, true, [&] { return carrier().Gather(call, list, input, root); });
}

WorkPtr XlaBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                            const c10d::ScatterOptions& opts) {
  RequireWritable("scatter", "output", outputs);
  const at::Tensor& output = Only("scatter", "output", outputs);
  RequireRank("scatter", "src", opts.rootRank, size_);
  const Tensors list = OfRoot("scatter", "input", inputs, output, rank_ == opts.rootRank, size_);
  const auto call = Begin("scatter", ShapeText(output) + ", src " + RankText(opts.rootRank), list,
                          opts.timeout, opts.asyncOp);
  const int root = static_cast<int>(opts.rootRank);
  return Issue(call, true, [&] { return carrier().Scatter(call, output, list, root); });
}

WorkPtr XlaBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kOp = "reduce_scatter";
  RequireWritable(kOp, "output", outputs);
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
  const auto call = Begin(kOp,
                          Text(inputs) + Unlike(" into ", outputs, OfRank(inputs, rank_)) + ", " +
                              TextOf(opts.reduceOp),
                          Flat(inputs), opts.timeout, opts.asyncOp);
  return Issue(call, true, [&] {
    return into ? carrier().ReduceScatterInto(call, outputs, buffers, opts.reduceOp)
                : carrier().ReduceScatter(call, outputs, inputs, opts.reduceOp);
  });
}

WorkPtr XlaBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kOp = "reduce_scatter_tensor";
  RequireWhole(kOp, "input", inputs, outputs, size_);
  RequireReduction(kOp, outputs, opts.reduceOp);
  const auto call = Begin(
      kOp, Text(outputs) + UnlikeWhole(" of ", inputs, outputs) + ", " + TextOf(opts.reduceOp),
      inputs, opts.timeout, opts.asyncOp);
  return Issue(call, true,
               [&] { return carrier().ReduceScatterInto(call, outputs, inputs, opts.reduceOp); });
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
  RequireWritable(kOp, "output", {output});
  RequireOurs(kOp, "input", input);
  RequireType(kOp, "output", output, input);
  RequireSplits(kOp, "output", output_splits, output, size_);
  RequireSplits(kOp, "input", input_splits, input, size_);
  if (output_splits.empty() && input_splits.empty()) {
    RequireElements(kOp, "output", output, input.numel(), "as the input");
    const std::string text = ShapeText(input) + Unlike(" into ", {output}, {input});
    const auto call = Begin(kOp, text, {input}, opts.timeout, opts.asyncOp);
    return Issue(call, true, [&] { return carrier().AllToAllSingle(call, output, input, {}, {}); });
  }
  if (output.sizes().slice(1) != input.sizes().slice(1)) {
    Wrong("D4", kOp, "output", ShapeText(output),
          "of rows as those of the input, " + RowText(input), "Allocate it with that shape");
  }
  const auto call = Begin(kOp, "rows of " + RowText(input) + ", split sizes", {input}, opts.timeout,
                          opts.asyncOp);
  call->meets = true;
  call->sent = input_splits.empty() ? Even(input, size_) : input_splits;
  call->received = output_splits.empty() ? Even(output, size_) : output_splits;
  return Issue(call, true, [&] {
    return carrier().AllToAllSingle(call, output, input, call->received, call->sent);
  });
}

WorkPtr XlaBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  constexpr const char* kOp = "all_to_all";
  RequireCount(kOp, "output", outputs.size(), size_, kRank);
  RequireCount(kOp, "input", inputs.size(), size_, kRank);
  RequireWritable(kOp, "output", outputs);
  RequireOurs(kOp, "input", inputs);
  for (const at::Tensor& x : outputs) RequireType(kOp, "output", x, inputs[0]);
  for (const at::Tensor& x : inputs) RequireType(kOp, "input", x, inputs[0]);
  RequireElements(kOp, "output[" + std::to_string(rank_) + "]", outputs[rank_],
                  inputs[rank_].numel(), "as what this rank sends to itself");
  const auto call = Begin(kOp, DtypeText(inputs[0]), inputs, opts.timeout, opts.asyncOp);
  call->meets = true;
  call->sent = Elements(inputs);
  call->received = Elements(outputs);
  return Issue(call, true, [&] { return carrier().AllToAll(call, outputs, inputs); });
}

template <class Start>
WorkPtr XlaBackend::PointToPoint(const char* op, const at::Tensor& x, int peer, int tag,
                                 const Start& start) {
  const bool sends = op == std::string("send");
  const std::string whom = peer == kAnySource ? "any rank" : RankText(peer);
  const std::string text =
      ShapeText(x) + (sends ? ", dst " : ", src ") + whom + ", tag " + std::to_string(tag);
  const char* event = peer == kAnySource ? "recvAnySource" : op;  // as other backends call it
  const auto call = Begin(op, text, {x}, options_->timeout, true, event);
  call->payload = ShapeText(x);
  if (!coalesced_ || peer == kAnySource || !carrier().TakesBatches()) {
    return Issue(call, false, [&] { return start(call); });
  }
  const auto dtype = static_cast<int64_t>(x.scalar_type());
  ends_.push_back(
      {sends, peer, tag, dtype, x.sizes().vec(), call->what + " at " + SaidOf(*call).site});
  end_tensors_.push_back(x);
  return Issued({x});
}

WorkPtr XlaBackend::send(Tensors& tensors, int to, int tag) {
  RequireOurs("send", "tensor", tensors);
  const at::Tensor& x = Only("send", "tensor", tensors);
  RequireRank("send", "dst", to, size_);
  RequireTag("send", tag);
  return PointToPoint("send", x, to, tag,
                      [&](const CallPtr& call) { return carrier().Send(call, x, to, tag); });
}

WorkPtr XlaBackend::recv(Tensors& tensors, int from, int tag) {
  RequireRank("recv", "src", from, size_);
  return Receive(tensors, from, tag);
}

WorkPtr XlaBackend::recvAnysource(Tensors& tensors, int tag) {
  return Receive(tensors, kAnySource, tag);
}

WorkPtr XlaBackend::Receive(const Tensors& tensors, int from, int tag) {
  RequireWritable("recv", "tensor", tensors);
  const at::Tensor& x = Only("recv", "tensor", tensors);
  RequireTag("recv", tag);
  return PointToPoint("recv", x, from, tag,
                      [&](const CallPtr& call) { return carrier().Recv(call, x, from, tag); });
}

WorkPtr XlaBackend::barrier(const c10d::BarrierOptions& opts) {
  const auto call = Begin("barrier", "", {}, opts.timeout, opts.asyncOp);
  call->meets = true;
  return Issue(call, true, [&] { return carrier().Barrier(call); });
}

// All that do not come are named, whether asked to or not.
void XlaBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool) {
  barrier(opts)->wait(kNoTimeout);
}

}  // namespace xla_cc
