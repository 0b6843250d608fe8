#include "torch_xla_cc/distributed/graph_transport.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <numeric>

#include "torch_xla_cc/arguments.h"
#include "torch_xla_cc/distributed/board.h"
#include "torch_xla_cc/distributed/reductions.h"
#include "torch_xla_cc/distributed/work.h"
#include "torch_xla_cc/graph.h"

namespace xla_cc {
namespace {

// Other ranks of the world are in groups of the same size where that comes out even: they do not
// take part, and compilers take such groups.
Groups GroupsFor(const Group& group) {
  const Groups own({group.members});
  return own.Completed(group.world_size).value_or(own);
}

// The outputs see `value` from here on. Not as an operation that autograd knows of.
void Write(const at::Tensor& output, const at::Tensor& value) {
  output.copy_(value.reshape(output.sizes()));
}

Tensors Issue(const Collective& node, const Tensors& operands) {
  const py::gil_scoped_acquire locked;
  return AttachTensors(node, operands);
}

// Rows of one element, as many as `rows`; what is filled up does not count.
at::Tensor AsRows(const at::Tensor& x, int64_t rows) {
  const at::Tensor flat = x.reshape({-1});
  const int64_t given = flat.size(0);
  if (given == rows) return flat;
  if (given == 0) return at::zeros({rows}, x.options());
  // Not a concatenation: XLA:CPU makes one of narrow floats as f32, and so quietens NaNs.
  const auto indices = at::arange(rows, x.options().dtype(at::kLong)).clamp_max(given - 1);
  return flat.index_select(0, indices);
}

Tensors Flat(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

bool AllAlike(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& x) { return x.sizes() == tensors[0].sizes(); });
}

int64_t Sum(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

std::vector<int64_t> Elements(const Tensors& tensors) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& x : tensors) sizes.push_back(x.numel());
  return sizes;
}

std::string Text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (int64_t number : numbers) text += std::to_string(number) + ",";
  return text;
}

std::vector<int64_t> Numbers(const std::string& text) {
  std::vector<int64_t> numbers;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find(',', at);
    numbers.push_back(std::stoll(text.substr(at, end - at)));
    at = end + 1;
  }
  return numbers;
}

// Runs what this thread's rank has pending, and what it reads of it.
void RunPending() {
  const py::gil_scoped_acquire locked;
  const py::module_ door = py::module_::import("torch_xla_cc._door");
  door.attr("run_pending")(door.attr("default_rank")());
}

// Waits for other ranks, which may need the interpreter lock to come.
template <class Function>
auto Unlocked(const Function& wait) {
  if (!PyGILState_Check()) return wait();
  const py::gil_scoped_release unlocked;
  return wait();
}

at::Tensor ToHost(const at::Tensor& x) { return x.to(at::kCPU); }

}  // namespace

bool& InGraph() {
  thread_local bool in_graph = false;
  return in_graph;
}

GraphTransport::GraphTransport(Group group)
    : Transport(std::move(group)), groups_(GroupsFor(this->group())) {}

// Other backends issue a call at once, so programs take for granted that a rank may read what it
// gave while another goes on to its next call. In a lazy graph that rank's call would not have been
// issued. So what is pending runs with each call, but where the program says that it need not.
WorkPtr GraphTransport::Done(Tensors outputs) const {
  if (group().size() > 1 && !holds_ && !InGraph()) RunPending();
  return Issued(std::move(outputs));
}

void GraphTransport::Release() {
  holds_ = false;
  Done({});
}

std::vector<std::string> GraphTransport::Exchange(const std::string& value, Timeout timeout) {
  RunPending();
  return Unlocked([&] { return Board::Get().Exchange(group(), exchanges_++, value, timeout); });
}

WorkPtr GraphTransport::AllReduce(const Tensors& xs, const c10d::ReduceOp& op, Timeout) {
  const Tensors results = Issue(xla_cc::AllReduce{ReductionOf(op), groups_}, xs);
  for (size_t i = 0; i < xs.size(); ++i) Write(xs[i], results[i]);
  return Done(xs);
}

WorkPtr GraphTransport::Broadcast(const Tensors& xs, int root, Timeout) {
  const Tensors results = Issue(CollectiveBroadcast{group().members[root], groups_}, xs);
  for (size_t i = 0; i < xs.size(); ++i) Write(xs[i], results[i]);
  return Done(xs);
}

WorkPtr GraphTransport::Reduce(const Tensors& xs, const c10d::ReduceOp& op, int root, Timeout) {
  const Tensors results = Issue(xla_cc::AllReduce{ReductionOf(op), groups_}, xs);
  for (size_t i = 0; i < xs.size() && group().rank == root; ++i) Write(xs[i], results[i]);
  return Done(xs);
}

WorkPtr GraphTransport::AllGather(const std::vector<Tensors>& outputs, const Tensors& inputs,
                                  Timeout) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (AllAlike(outputs[i])) {
      const Tensors gathered = Issue(xla_cc::AllGather{0, groups_}, {inputs[i].unsqueeze(0)});
      for (int rank = 0; rank < group().size(); ++rank) {
        Write(outputs[i][rank], gathered[0].select(0, rank));
      }
      continue;
    }
    const std::vector<int64_t> elements = Elements(outputs[i]);
    Sizes sizes(group().world_size, 0);
    for (int rank = 0; rank < group().size(); ++rank) {
      sizes[group().members[rank]] = elements[rank];
    }
    const Tensors gathered = Issue(UnevenAllGather{sizes, Groups({group().members})},
                                   {AsRows(inputs[i], Largest(sizes))});
    int64_t start = 0;
    for (int rank = 0; rank < group().size(); start += elements[rank++]) {
      Write(outputs[i][rank], gathered[0].narrow(0, start, elements[rank]));
    }
  }
  return Done(Flat(outputs));
}

WorkPtr GraphTransport::AllGatherInto(const Tensors& outputs, const Tensors& inputs, Timeout) {
  const Tensors gathered = Issue(xla_cc::AllGather{0, groups_}, inputs);
  for (size_t i = 0; i < outputs.size(); ++i) Write(outputs[i], gathered[i]);
  return Done(outputs);
}

WorkPtr GraphTransport::Gather(const Tensors& outputs, const at::Tensor& input, int root, Timeout) {
  const Tensors gathered = Issue(xla_cc::AllGather{0, groups_}, {input.unsqueeze(0)});
  for (int rank = 0; rank < group().size() && group().rank == root; ++rank) {
    Write(outputs[rank], gathered[0].select(0, rank));
  }
  return Done(outputs);
}

WorkPtr GraphTransport::Scatter(const at::Tensor& output, const Tensors& inputs, int root,
                                Timeout) {
  const int64_t rows = output.numel();
  SizeMatrix sizes(group().world_size, Sizes(group().world_size, 0));
  for (int64_t member : group().members) sizes[group().members[root]][member] = rows;
  const at::Tensor operand = group().rank == root
                                 ? at::stack(inputs).reshape({-1})
                                 : at::zeros({rows * group().size()}, output.options());
  const Tensors received = Issue(UnevenAllToAll{sizes, Groups({group().members})}, {operand});
  Write(output, received[0].narrow(0, 0, rows));
  return Done({output});
}

WorkPtr GraphTransport::ReduceScatter(const Tensors& outputs, const std::vector<Tensors>& inputs,
                                      const c10d::ReduceOp& op, Timeout) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (AllAlike(inputs[i])) {
      const Tensors scattered =
          Issue(xla_cc::ReduceScatter{ReductionOf(op), 0, {}, groups_}, {at::stack(inputs[i])});
      Write(outputs[i], scattered[0]);
      continue;
    }
    const std::vector<int64_t> elements = Elements(inputs[i]);
    Sizes sizes(group().world_size, 0);
    for (int rank = 0; rank < group().size(); ++rank) {
      sizes[group().members[rank]] = elements[rank];
    }
    Tensors parts;
    for (const at::Tensor& x : inputs[i]) parts.push_back(x.reshape({-1}));
    const Tensors scattered = Issue(
        UnevenReduceScatter{ReductionOf(op), sizes, Groups({group().members})}, {at::cat(parts)});
    Write(outputs[i], scattered[0].narrow(0, 0, outputs[i].numel()));
  }
  return Done(outputs);
}

WorkPtr GraphTransport::ReduceScatterInto(const Tensors& outputs, const Tensors& inputs,
                                          const c10d::ReduceOp& op, Timeout) {
  Tensors operands;
  for (const at::Tensor& input : inputs) {
    const bool rows = input.dim() > 0 && input.size(0) % group().size() == 0;
    operands.push_back(rows ? input : input.reshape({-1}));
  }
  const Tensors scattered = Issue(xla_cc::ReduceScatter{ReductionOf(op), 0, {}, groups_}, operands);
  for (size_t i = 0; i < outputs.size(); ++i) Write(outputs[i], scattered[i]);
  return Done(outputs);
}

WorkPtr GraphTransport::AllToAll(const Tensors& outputs, const Tensors& inputs, Timeout timeout) {
  Tensors parts;
  for (const at::Tensor& x : inputs) parts.push_back(x.reshape({-1}));
  const std::vector<int64_t> received = Elements(outputs);
  const at::Tensor output = at::empty({Sum(received)}, outputs[0].options());
  AllToAllSingle(output, at::cat(parts), received, Elements(inputs), timeout);
  int64_t start = 0;
  for (size_t i = 0; i < outputs.size(); start += received[i++]) {
    Write(outputs[i], output.narrow(0, start, received[i]));
  }
  return Done(outputs);
}

WorkPtr GraphTransport::AllToAllSingle(const at::Tensor& output, const at::Tensor& input,
                                       const std::vector<int64_t>& output_splits,
                                       const std::vector<int64_t>& input_splits, Timeout timeout) {
  if (input_splits.empty() && output_splits.empty()) {
    Write(output, Issue(xla_cc::AllToAll{0, 0, {}, groups_}, {input})[0]);
    return Done({output});
  }
  const int size = group().size();
  SizeMatrix sizes(group().world_size, Sizes(group().world_size, 0));
  const std::vector<std::string> rows = Exchange(Text(input_splits), timeout);
  for (int from = 0; from < size; ++from) {
    const std::vector<int64_t> sent = Numbers(rows[from]);
    for (int to = 0; to < size; ++to) {
      sizes[group().members[from]][group().members[to]] = sent[to];
      if (to != group().rank || sent[to] == output_splits[from]) continue;
      throw BadValue("alltoall_base: output_split_sizes[" + std::to_string(from) +
                     "] = " + std::to_string(output_splits[from]) + " on rank " +
                     std::to_string(to) + ", but rank " + std::to_string(from) + " sends it " +
                     std::to_string(sent[to]) + " rows. Tell both ranks the same");
    }
  }
  const int64_t given = Sum(input_splits);
  const int64_t most = Largest(Sums(sizes));
  at::Tensor operand = input;
  if (most > given && given > 0) {
    const auto indices = at::arange(most, input.options().dtype(at::kLong)).clamp_max(given - 1);
    operand = input.index_select(0, indices);
  } else if (most > given) {
    std::vector<int64_t> dims = input.sizes().vec();
    dims[0] = most;
    operand = at::zeros(dims, input.options());
  }
  const Tensors received = Issue(UnevenAllToAll{sizes, Groups({group().members})}, {operand});
  Write(output, received[0].narrow(0, 0, Sum(output_splits)));
  return Done({output});
}

WorkPtr GraphTransport::Send(const at::Tensor& x, int to, int tag, Timeout) {
  Board::Get().Put(group(), to, tag, ToHost(x));
  return Issued({x});
}

WorkPtr GraphTransport::Recv(const at::Tensor& x, int from, int tag, Timeout timeout) {
  const Board::SlotPtr slot = Board::Get().Ask(group(), from, tag);
  const auto take = [group = group(), x, slot, timeout](Timeout of_wait) {
    RunPending();  // the sender may wait for it
    const Timeout limit = of_wait == kNoTimeout ? timeout : of_wait;
    Unlocked([&] { Board::Get().Await(group, slot, limit); });
    const at::AutoDispatchBelowADInplaceOrView guard;
    Write(x, slot->x.to(x.device()));
    return slot->source;
  };
  return c10::make_intrusive<ReceiveWork>([slot] { return Board::Get().HasCome(slot); }, take, x);
}

WorkPtr GraphTransport::RecvAnySource(const at::Tensor& x, int tag, Timeout timeout) {
  return Recv(x, -1, tag, timeout);
}

WorkPtr GraphTransport::Barrier(Timeout timeout) {
  Exchange("", timeout);
  return Issued({});
}

}  // namespace xla_cc
