#include "torch_xla_cc/distributed/host_transport.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "torch_xla_cc/arguments.h"
#include "torch_xla_cc/distributed/host_memory.h"
#include "torch_xla_cc/distributed/host_reduce.h"
#include "torch_xla_cc/distributed/work.h"

namespace xla_cc {
namespace {

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

WorkPtr Then(std::vector<WorkPtr> parts, std::function<void()> finish, Tensors outputs) {
  return c10::make_intrusive<HostWork>(std::move(parts), std::move(finish), std::move(outputs));
}

}  // namespace

HostTransport::HostTransport(Group group, c10::intrusive_ptr<c10d::Backend> gloo)
    : Transport(std::move(group)), gloo_(std::move(gloo)) {}

WorkPtr HostTransport::GatherBytes(const std::vector<int64_t>& sizes, const at::Tensor& own,
                                   Tensors* parts, Timeout timeout) {
  for (int64_t size : sizes) parts->push_back(HostBuffer({size}, at::kByte));
  const bool alike =
      std::all_of(sizes.begin(), sizes.end(), [&](int64_t n) { return n == sizes[0]; });
  if (alike) {
    std::vector<Tensors> outputs{*parts};
    Tensors inputs{own};
    return gloo_->allgather(outputs, inputs, With<c10d::AllgatherOptions>(timeout));
  }
  // gloo gathers one size only. Of several: everybody sends its own to everybody.
  std::vector<int64_t> sent(sizes.size(), own.numel());
  std::vector<int64_t> received = sizes;
  at::Tensor input = own.repeat({group().size()});
  at::Tensor output = HostBuffer({Sum(sizes)}, at::kByte);
  int64_t start = 0;
  for (size_t i = 0; i < sizes.size(); start += sizes[i++]) {
    (*parts)[i] = output.narrow(0, start, sizes[i]);
  }
  return gloo_->alltoall_base(output, input, received, sent, With<c10d::AllToAllOptions>(timeout));
}

WorkPtr HostTransport::ExchangeBytes(const at::Tensor& sent, std::vector<int64_t> sent_sizes,
                                     std::vector<int64_t> received_sizes, at::Tensor* received,
                                     Timeout timeout) {
  *received = HostBuffer({Sum(received_sizes)}, at::kByte);
  at::Tensor input = sent;
  return gloo_->alltoall_base(*received, input, received_sizes, sent_sizes,
                              With<c10d::AllToAllOptions>(timeout));
}

WorkPtr HostTransport::AllReduce(const Tensors& xs, const c10d::ReduceOp& op, Timeout timeout) {
  std::vector<WorkPtr> parts;
  std::vector<std::function<void()>> finishes;
  for (const at::Tensor& x : xs) {
    if (const auto carried = CarriedByGloo(op, x.scalar_type())) {
      Tensors values{Prepared(HostCopy(x), op)};
      c10d::AllreduceOptions options = With<c10d::AllreduceOptions>(timeout);
      options.reduceOp = *carried;
      parts.push_back(gloo_->allreduce(values, options));
      finishes.push_back([x, op, value = values[0], size = group().size()] {
        WriteFromHost(x, Completed(value, op, x.scalar_type(), size));
      });
      continue;
    }
    const at::Tensor own = HostView(x);
    auto all = std::make_shared<Tensors>();
    const at::Tensor bytes = Bytes(own);
    parts.push_back(GatherBytes(std::vector<int64_t>(group().size(), bytes.numel()), bytes,
                                all.get(), timeout));
    finishes.push_back([x, op, own, all] {
      Tensors values;
      for (const at::Tensor& part : *all) values.push_back(FromBytes(part, own));
      WriteFromHost(x, ReducedHere(values, op));
    });
  }
  return Then(
      std::move(parts),
      [finishes] {
        for (const auto& finish : finishes) finish();
      },
      xs);
}

WorkPtr HostTransport::Broadcast(const Tensors& xs, int root, Timeout timeout) {
  std::vector<WorkPtr> parts;
  Tensors values;
  for (const at::Tensor& x : xs) {
    values.push_back(group().rank == root ? HostView(x) : HostBuffer(x.sizes(), x.scalar_type()));
    Tensors bytes{Bytes(values.back())};
    c10d::BroadcastOptions options = With<c10d::BroadcastOptions>(timeout);
    options.rootRank = root;
    parts.push_back(gloo_->broadcast(bytes, options));
  }
  return Then(
      std::move(parts),
      [xs, values, write = group().rank != root] {
        for (size_t i = 0; i < xs.size() && write; ++i) WriteFromHost(xs[i], values[i]);
      },
      xs);
}

WorkPtr HostTransport::Reduce(const Tensors& xs, const c10d::ReduceOp& op, int root,
                              Timeout timeout) {
  // What others than the root get is dropped: it is what all have in an all_reduce.
  if (group().rank == root) return AllReduce(xs, op, timeout);
  Tensors copies;
  for (const at::Tensor& x : xs) copies.push_back(x.clone());
  return AllReduce(copies, op, timeout);
}

WorkPtr HostTransport::AllGather(const std::vector<Tensors>& outputs, const Tensors& inputs,
                                 Timeout timeout) {
  std::vector<WorkPtr> parts;
  auto gathered = std::make_shared<std::vector<Tensors>>(inputs.size());
  Tensors all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<int64_t> sizes;
    for (const at::Tensor& output : outputs[i]) {
      sizes.push_back(output.numel() * static_cast<int64_t>(output.element_size()));
      all.push_back(output);
    }
    parts.push_back(GatherBytes(sizes, Bytes(HostView(inputs[i])), &(*gathered)[i], timeout));
  }
  return Then(
      std::move(parts),
      [outputs, gathered] {
        for (size_t i = 0; i < outputs.size(); ++i) {
          for (size_t rank = 0; rank < outputs[i].size(); ++rank) {
            const at::Tensor& output = outputs[i][rank];
            WriteFromHost(output, FromBytes((*gathered)[i][rank], output));
          }
        }
      },
      all);
}

WorkPtr HostTransport::AllGatherInto(const Tensors& outputs, const Tensors& inputs,
                                     Timeout timeout) {
  std::vector<WorkPtr> parts;
  Tensors values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    values.push_back(HostBuffer({outputs[i].numel()}, outputs[i].scalar_type()));
    at::Tensor output = Bytes(values[i]);
    at::Tensor input = Bytes(HostView(inputs[i]));
    parts.push_back(gloo_->_allgather_base(output, input, With<c10d::AllgatherOptions>(timeout)));
  }
  return Then(
      std::move(parts),
      [outputs, values] {
        for (size_t i = 0; i < outputs.size(); ++i) WriteFromHost(outputs[i], values[i]);
      },
      outputs);
}

WorkPtr HostTransport::Gather(const Tensors& outputs, const at::Tensor& input, int root,
                              Timeout timeout) {
  Tensors own{Bytes(HostView(input))};
  std::vector<Tensors> parts;
  if (group().rank == root) {
    parts.emplace_back();
    for (int i = 0; i < group().size(); ++i) {
      parts[0].push_back(HostBuffer({own[0].numel()}, at::kByte));
    }
  }
  c10d::GatherOptions options = With<c10d::GatherOptions>(timeout);
  options.rootRank = root;
  WorkPtr work = gloo_->gather(parts, own, options);
  return Then(
      {std::move(work)},
      [outputs, parts] {
        for (size_t i = 0; i < outputs.size(); ++i) {
          WriteFromHost(outputs[i], FromBytes(parts[0][i], outputs[i]));
        }
      },
      outputs);
}

WorkPtr HostTransport::Scatter(const at::Tensor& output, const Tensors& inputs, int root,
                               Timeout timeout) {
  const at::Tensor value = HostBuffer(output.sizes(), output.scalar_type());
  Tensors outputs{Bytes(value)};
  std::vector<Tensors> lists;
  if (group().rank == root) {
    lists.emplace_back();
    for (const at::Tensor& input : inputs) lists[0].push_back(Bytes(HostView(input)));
  }
  c10d::ScatterOptions options = With<c10d::ScatterOptions>(timeout);
  options.rootRank = root;
  WorkPtr work = gloo_->scatter(outputs, lists, options);
  return Then({std::move(work)}, [output, value] { WriteFromHost(output, value); }, {output});
}

WorkPtr HostTransport::ReduceScatterBytes(const Tensors& outputs, const Tensors& bytes,
                                          const std::vector<std::vector<int64_t>>& sizes,
                                          const c10d::ReduceOp& op, Timeout timeout) {
  std::vector<WorkPtr> parts;
  auto received = std::make_shared<Tensors>(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::vector<int64_t> own(group().size(), sizes[i][group().rank]);
    parts.push_back(ExchangeBytes(bytes[i], sizes[i], own, &(*received)[i], timeout));
  }
  return Then(
      std::move(parts),
      [outputs, received, op, size = group().size()] {
        for (size_t i = 0; i < outputs.size(); ++i) {
          if (outputs[i].numel() == 0) continue;
          Tensors values;
          for (const at::Tensor& part : (*received)[i].chunk(size)) {
            values.push_back(FromBytes(part, outputs[i]));
          }
          WriteFromHost(outputs[i], ReducedHere(values, op));
        }
      },
      outputs);
}

WorkPtr HostTransport::ReduceScatter(const Tensors& outputs, const std::vector<Tensors>& inputs,
                                     const c10d::ReduceOp& op, Timeout timeout) {
  Tensors joined;
  std::vector<std::vector<int64_t>> sizes;
  for (const Tensors& list : inputs) {
    Tensors bytes;
    sizes.emplace_back();
    for (const at::Tensor& input : list) {
      bytes.push_back(Bytes(HostView(input)));
      sizes.back().push_back(bytes.back().numel());
    }
    joined.push_back(at::cat(bytes));
  }
  return ReduceScatterBytes(outputs, joined, sizes, op, timeout);
}

WorkPtr HostTransport::ReduceScatterInto(const Tensors& outputs, const Tensors& inputs,
                                         const c10d::ReduceOp& op, Timeout timeout) {
  Tensors bytes;
  std::vector<std::vector<int64_t>> sizes;
  for (const at::Tensor& input : inputs) {
    bytes.push_back(Bytes(HostView(input)));
    sizes.emplace_back(group().size(), bytes.back().numel() / group().size());
  }
  return ReduceScatterBytes(outputs, bytes, sizes, op, timeout);
}

WorkPtr HostTransport::AllToAll(const Tensors& outputs, const Tensors& inputs, Timeout timeout) {
  Tensors bytes;
  std::vector<int64_t> sent;
  std::vector<int64_t> sizes;
  for (const at::Tensor& input : inputs) {
    bytes.push_back(Bytes(HostView(input)));
    sent.push_back(bytes.back().numel());
  }
  for (const at::Tensor& output : outputs) {
    sizes.push_back(output.numel() * static_cast<int64_t>(output.element_size()));
  }
  auto received = std::make_shared<at::Tensor>();
  WorkPtr work = ExchangeBytes(at::cat(bytes), sent, sizes, received.get(), timeout);
  return Then(
      {std::move(work)},
      [outputs, received, sizes] {
        int64_t start = 0;
        for (size_t i = 0; i < outputs.size(); start += sizes[i++]) {
          const at::Tensor part = received->narrow(0, start, sizes[i]);
          WriteFromHost(outputs[i], FromBytes(part, outputs[i]));
        }
      },
      outputs);
}

WorkPtr HostTransport::AllToAllSingle(const at::Tensor& output, const at::Tensor& input,
                                      const std::vector<int64_t>& output_splits,
                                      const std::vector<int64_t>& input_splits, Timeout timeout) {
  const at::Tensor value = HostBuffer(output.sizes(), output.scalar_type());
  at::Tensor received = Bytes(value);
  at::Tensor sent = Bytes(HostView(input));
  const auto in_bytes = [](const at::Tensor& x, std::vector<int64_t> splits) {
    const int64_t rows = x.dim() > 0 && x.size(0) > 0 ? x.size(0) : 1;
    const int64_t row = x.numel() / rows * static_cast<int64_t>(x.element_size());
    for (int64_t& split : splits) split *= row;
    return splits;
  };
  std::vector<int64_t> received_sizes = in_bytes(output, output_splits);
  std::vector<int64_t> sent_sizes = in_bytes(input, input_splits);
  WorkPtr work = gloo_->alltoall_base(received, sent, received_sizes, sent_sizes,
                                      With<c10d::AllToAllOptions>(timeout));
  return Then({std::move(work)}, [output, value] { WriteFromHost(output, value); }, {output});
}

WorkPtr HostTransport::Send(const at::Tensor& x, int to, int tag, Timeout) {
  Tensors bytes{Bytes(HostView(x))};
  return Then({gloo_->send(bytes, to, tag)}, [] {}, {x});
}

WorkPtr HostTransport::Recv(const at::Tensor& x, int from, int tag, Timeout) {
  const at::Tensor value = HostBuffer(x.sizes(), x.scalar_type());
  Tensors bytes{Bytes(value)};
  WorkPtr work = from < 0 ? gloo_->recvAnysource(bytes, tag) : gloo_->recv(bytes, from, tag);
  return Then({std::move(work)}, [x, value] { WriteFromHost(x, value); }, {x});
}

WorkPtr HostTransport::RecvAnySource(const at::Tensor& x, int tag, Timeout timeout) {
  return Recv(x, -1, tag, timeout);
}

WorkPtr HostTransport::Barrier(Timeout timeout) {
  return gloo_->barrier(With<c10d::BarrierOptions>(timeout));
}

}  // namespace xla_cc
