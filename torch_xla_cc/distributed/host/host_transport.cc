#include "torch_xla_cc/distributed/host/host_transport.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "torch_xla_cc/distributed/host/host_memory.h"
#include "torch_xla_cc/distributed/host/host_reduce.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/gil.h"

namespace xla_cc {
namespace {

constexpr size_t kMostSends = 32;

// gloo moves bytes, so every type.
at::Tensor Bytes(const at::Tensor& x) {
  if (x.numel() == 0) return at::empty({0}, at::kByte);
  return x.reshape({-1}).view(at::kByte);
}

at::Tensor FromBytes(const at::Tensor& bytes, const at::Tensor& like) {
  if (bytes.numel() == 0) return at::empty({0}, at::TensorOptions(like.scalar_type()));
  return bytes.view(like.scalar_type());
}

int64_t Sum(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

template <class Options>
Options With(Timeout timeout) {
  Options options;
  options.timeout = timeout;
  return options;
}

int64_t BytesOf(const at::Tensor& x) { return x.numel() * static_cast<int64_t>(x.element_size()); }

std::vector<int64_t> BytesOf(const Tensors& xs) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& x : xs) sizes.push_back(BytesOf(x));
  return sizes;
}

Tensors BytesOfEach(const Tensors& xs) {
  Tensors bytes;
  for (const at::Tensor& x : xs) bytes.push_back(Bytes(HostView(x)));
  return bytes;
}

// Of parts one behind the other, the one for each tensor.
void WriteEach(const Tensors& outputs, const at::Tensor& bytes) {
  int64_t start = 0;
  for (const at::Tensor& output : outputs) {
    const int64_t size = BytesOf(output);
    WriteFromHost(output, FromBytes(bytes.narrow(0, start, size), output));
    start += size;
  }
}

}  // namespace

HostTransport::HostTransport(RankGroup group, c10::intrusive_ptr<c10d::Backend> gloo,
                             const c10::intrusive_ptr<c10d::Store>& store, CheckMode mode,
                             std::string why)
    : Transport(std::move(group)),
      why_(std::move(why)),
      gloo_(std::make_shared<GlooGroup>(std::move(gloo), shared_health())),
      check_(std::make_shared<StoreCheck>(this->group(), store, mode)) {}

void HostTransport::Announce(const CallPtr&) {}  // in the queue, before the call is given to gloo

c10::intrusive_ptr<HostWork> HostTransport::Run(const CallPtr& call, std::vector<Step> parts,
                                                Tensors outputs) {
  ThroughHost(*call, why_);
  return Enqueue(call, std::move(parts), std::move(outputs));
}

c10::intrusive_ptr<HostWork> HostTransport::Enqueue(const CallPtr& call, std::vector<Step> parts,
                                                    Tensors outputs) {
  Said said;
  {
    const py::gil_scoped_acquire locked;
    said = SaidOf(*call);
  }
  auto work =
      c10::make_intrusive<HostWork>(call, std::move(said), std::move(parts), std::move(outputs),
                                    check_, shared_health(), gloo_->count());
  if (call->async) {
    queue_.Add([work] { work->Start(); });
  } else {
    Unlocked([&] { queue_.RunOrAdd([work] { work->Start(); }); });
  }
  return work;
}

WorkPtr HostTransport::GatherBytes(Timeout timeout, const std::vector<int64_t>& sizes,
                                   const at::Tensor& own, Tensors* parts) {
  const bool alike =
      std::all_of(sizes.begin(), sizes.end(), [&](int64_t n) { return n == sizes[0]; });
  if (alike) {
    for (int64_t size : sizes) parts->push_back(HostBuffer({size}, at::kByte));
    std::vector<Tensors> outputs{*parts};
    Tensors inputs{own};
    return gloo_->group().allgather(outputs, inputs, With<c10d::AllgatherOptions>(timeout));
  }
  // gloo gathers one size only. Of several: everybody sends its own to everybody.
  std::vector<int64_t> sent(sizes.size(), own.numel());
  at::Tensor output;
  WorkPtr work = ExchangeBytes(timeout, own.repeat({group().size()}), sent, sizes, &output);
  int64_t start = 0;
  for (int64_t size : sizes) {
    parts->push_back(output.narrow(0, start, size));
    start += size;
  }
  return work;
}

WorkPtr HostTransport::ExchangeBytes(Timeout timeout, const at::Tensor& sent,
                                     std::vector<int64_t> sent_sizes,
                                     std::vector<int64_t> received_sizes, at::Tensor* received) {
  *received = HostBuffer({Sum(received_sizes)}, at::kByte);
  at::Tensor input = sent;
  return gloo_->group().alltoall_base(*received, input, received_sizes, sent_sizes,
                                      With<c10d::AllToAllOptions>(timeout));
}

HostWork::Step HostTransport::Reduction(const CallPtr& call, const at::Tensor& x,
                                        const c10d::ReduceOp& op, bool write) {
  if (const auto carried = CarriedByGloo(op, x.scalar_type())) {
    const at::Tensor value = Prepared(HostCopy(x), op);
    const auto start = [this, call, value, kind = *carried] {
      Tensors values{value};
      c10d::AllreduceOptions options = With<c10d::AllreduceOptions>(call->timeout);
      options.reduceOp = kind;
      return gloo_->group().allreduce(values, options);
    };
    const auto finish = [x, op, value, write, size = group().size()] {
      if (write) WriteFromHost(x, Completed(value, op, x.scalar_type(), size));
    };
    return {start, finish};
  }
  const at::Tensor own = HostView(x);
  const auto all = std::make_shared<Tensors>();
  const auto start = [this, call, bytes = Bytes(own), all] {
    const std::vector<int64_t> sizes(group().size(), bytes.numel());
    return GatherBytes(call->timeout, sizes, bytes, all.get());
  };
  const auto finish = [x, op, own, all, write] {
    if (!write) return;
    Tensors values;
    for (const at::Tensor& part : *all) values.push_back(FromBytes(part, own));
    WriteFromHost(x, ReducedHere(values, op));
  };
  return {start, finish};
}

WorkPtr HostTransport::AllReduce(const CallPtr& call, const Tensors& xs, const c10d::ReduceOp& op) {
  std::vector<Step> parts;
  for (const at::Tensor& x : xs) parts.push_back(Reduction(call, x, op, true));
  return Run(call, std::move(parts), xs);
}

WorkPtr HostTransport::Reduce(const CallPtr& call, const Tensors& xs, const c10d::ReduceOp& op,
                              int root) {
  // What others than the root get is dropped: it is what all have in an all_reduce.
  std::vector<Step> parts;
  for (const at::Tensor& x : xs) parts.push_back(Reduction(call, x, op, group().rank == root));
  return Run(call, std::move(parts), xs);
}

WorkPtr HostTransport::Broadcast(const CallPtr& call, const Tensors& xs, int root) {
  std::vector<Step> parts;
  for (const at::Tensor& x : xs) {
    const bool write = group().rank != root;
    const at::Tensor value = write ? HostBuffer(x.sizes(), x.scalar_type()) : HostView(x);
    const auto start = [this, call, value, root] {
      Tensors bytes{Bytes(value)};
      c10d::BroadcastOptions options = With<c10d::BroadcastOptions>(call->timeout);
      options.rootRank = root;
      return gloo_->group().broadcast(bytes, options);
    };
    parts.push_back({start, [x, value, write] {
                       if (write) WriteFromHost(x, value);
                     }});
  }
  return Run(call, std::move(parts), xs);
}

WorkPtr HostTransport::AllGather(const CallPtr& call, const std::vector<Tensors>& outputs,
                                 const Tensors& inputs) {
  std::vector<Step> parts;
  Tensors all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    all.insert(all.end(), outputs[i].begin(), outputs[i].end());
    const auto gathered = std::make_shared<Tensors>();
    const auto start = [this, call, sizes = BytesOf(outputs[i]), bytes = Bytes(HostView(inputs[i])),
                        gathered] {
      return GatherBytes(call->timeout, sizes, bytes, gathered.get());
    };
    parts.push_back({start, [list = outputs[i], gathered] {
                       for (size_t rank = 0; rank < list.size(); ++rank) {
                         WriteFromHost(list[rank], FromBytes((*gathered)[rank], list[rank]));
                       }
                     }});
  }
  return Run(call, std::move(parts), std::move(all));
}

WorkPtr HostTransport::AllGatherInto(const CallPtr& call, const Tensors& outputs,
                                     const Tensors& inputs) {
  std::vector<Step> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor value = HostBuffer({outputs[i].numel()}, outputs[i].scalar_type());
    const auto start = [this, call, value, bytes = Bytes(HostView(inputs[i]))] {
      at::Tensor output = Bytes(value);
      at::Tensor input = bytes;
      return gloo_->group()._allgather_base(output, input,
                                            With<c10d::AllgatherOptions>(call->timeout));
    };
    parts.push_back({start, [x = outputs[i], value] { WriteFromHost(x, value); }});
  }
  return Run(call, std::move(parts), outputs);
}

WorkPtr HostTransport::Gather(const CallPtr& call, const Tensors& outputs, const at::Tensor& input,
                              int root) {
  const auto parts = std::make_shared<std::vector<Tensors>>();
  const auto start = [this, call, bytes = Bytes(HostView(input)), root, parts] {
    Tensors own{bytes};
    if (group().rank == root) {
      parts->emplace_back();
      for (int i = 0; i < group().size(); ++i) {
        parts->back().push_back(HostBuffer({bytes.numel()}, at::kByte));
      }
    }
    c10d::GatherOptions options = With<c10d::GatherOptions>(call->timeout);
    options.rootRank = root;
    return gloo_->group().gather(*parts, own, options);
  };
  const auto finish = [outputs, parts] {
    for (size_t i = 0; i < outputs.size(); ++i) {
      WriteFromHost(outputs[i], FromBytes((*parts)[0][i], outputs[i]));
    }
  };
  return Run(call, {{start, finish}}, outputs);
}

WorkPtr HostTransport::Scatter(const CallPtr& call, const at::Tensor& output, const Tensors& inputs,
                               int root) {
  const at::Tensor value = HostBuffer(output.sizes(), output.scalar_type());
  const auto start = [this, call, value, list = BytesOfEach(inputs), root] {
    Tensors outputs{Bytes(value)};
    std::vector<Tensors> lists;
    if (group().rank == root) lists.push_back(list);
    c10d::ScatterOptions options = With<c10d::ScatterOptions>(call->timeout);
    options.rootRank = root;
    return gloo_->group().scatter(outputs, lists, options);
  };
  return Run(call, {{start, [output, value] { WriteFromHost(output, value); }}}, {output});
}

HostWork::Step HostTransport::ReduceParts(const CallPtr& call, const at::Tensor& output,
                                          const at::Tensor& bytes,
                                          const std::vector<int64_t>& sizes,
                                          const c10d::ReduceOp& op) {
  const auto received = std::make_shared<at::Tensor>();
  const auto start = [this, call, bytes, sizes, received] {
    const std::vector<int64_t> own(group().size(), sizes[group().rank]);
    return ExchangeBytes(call->timeout, bytes, sizes, own, received.get());
  };
  const auto finish = [output, received, op, size = group().size()] {
    if (output.numel() == 0) return;
    Tensors values;
    for (const at::Tensor& part : received->chunk(size)) {
      values.push_back(FromBytes(part, output));
    }
    WriteFromHost(output, ReducedHere(values, op));
  };
  return {start, finish};
}

WorkPtr HostTransport::ReduceScatter(const CallPtr& call, const Tensors& outputs,
                                     const std::vector<Tensors>& inputs, const c10d::ReduceOp& op) {
  std::vector<Step> parts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor joined = at::cat(BytesOfEach(inputs[i]));
    parts.push_back(ReduceParts(call, outputs[i], joined, BytesOf(inputs[i]), op));
  }
  return Run(call, std::move(parts), outputs);
}

WorkPtr HostTransport::ReduceScatterInto(const CallPtr& call, const Tensors& outputs,
                                         const Tensors& inputs, const c10d::ReduceOp& op) {
  std::vector<Step> parts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::vector<int64_t> sizes(group().size(), BytesOf(outputs[i]));
    parts.push_back(ReduceParts(call, outputs[i], Bytes(HostView(inputs[i])), sizes, op));
  }
  return Run(call, std::move(parts), outputs);
}

WorkPtr HostTransport::AllToAll(const CallPtr& call, const Tensors& outputs,
                                const Tensors& inputs) {
  const auto received = std::make_shared<at::Tensor>();
  const auto start = [this, call, joined = at::cat(BytesOfEach(inputs)), sent = BytesOf(inputs),
                      sizes = BytesOf(outputs), received] {
    return ExchangeBytes(call->timeout, joined, sent, sizes, received.get());
  };
  return Run(call, {{start, [outputs, received] { WriteEach(outputs, *received); }}}, outputs);
}

WorkPtr HostTransport::AllToAllSingle(const CallPtr& call, const at::Tensor& output,
                                      const at::Tensor& input,
                                      const std::vector<int64_t>& output_splits,
                                      const std::vector<int64_t>& input_splits) {
  const auto in_bytes = [](const at::Tensor& x, std::vector<int64_t> splits) {
    const int64_t rows = x.dim() > 0 && x.size(0) > 0 ? x.size(0) : 1;
    for (int64_t& split : splits) split *= BytesOf(x) / rows;
    return splits;
  };
  const at::Tensor value = HostBuffer(output.sizes(), output.scalar_type());
  const auto start = [this, call, value, sent = Bytes(HostView(input)),
                      received_sizes = in_bytes(output, output_splits),
                      sent_sizes = in_bytes(input, input_splits)]() mutable {
    at::Tensor received = Bytes(value);
    return gloo_->group().alltoall_base(received, sent, received_sizes, sent_sizes,
                                        With<c10d::AllToAllOptions>(call->timeout));
  };
  return Run(call, {{start, [output, value] { WriteFromHost(output, value); }}}, {output});
}

WorkPtr HostTransport::Send(const CallPtr& call, const at::Tensor& x, int to, int tag) {
  uint32_t number = 0;
  c10::intrusive_ptr<HostSend> oldest;
  {
    const std::lock_guard lock(sends_mutex_);
    sends_.remove_if([](const auto& send) { return send->done(); });
    if (sends_.size() > kMostSends) oldest = sends_.front();
    number = ++sent_[to];
  }
  // Of many that nobody waits for, the oldest are waited for beside.
  if (oldest) oldest->isCompleted();
  auto send = c10::make_intrusive<HostSend>(Ends(call, to, tag), x, Bytes(HostView(x)), number);
  const std::lock_guard lock(sends_mutex_);
  sends_.push_back(send);
  return send;
}

WorkPtr HostTransport::Recv(const CallPtr& call, const at::Tensor& x, int from, int tag) {
  auto work = c10::make_intrusive<HostReceive>(Ends(call, from, tag), x);
  work->Begin();
  return work;
}

PointToPoint HostTransport::Ends(const CallPtr& call, int peer, int tag) {
  ThroughHost(*call, why_);
  const py::gil_scoped_acquire locked;
  Said said = SaidOf(*call);
  check_->Note(said);
  return {group(), gloo_, check_, shared_health(), own_mail_, call, std::move(said), peer, tag};
}

// All have come when the call has been compared.
WorkPtr HostTransport::Barrier(const CallPtr& call) { return Enqueue(call, {}, {}); }

std::vector<Said> HostTransport::Compare(const CallPtr& call) {
  const auto work = Enqueue(call, {}, {});
  work->Await(kNoTimeout);  // what is pending stays, where calls stay in the graph
  return work->said_by_all();
}

}  // namespace xla_cc
