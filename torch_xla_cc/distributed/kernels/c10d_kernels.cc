#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "torch_xla_cc/distributed/backend.h"
#include "torch_xla_cc/distributed/kernels/kernels.h"
#include "torch_xla_cc/distributed/tensors.h"
#include "torch_xla_cc/distributed/transport.h"
#include "torch_xla_cc/groupcall/group_call.h"
#include "torch_xla_cc/python_side.h"
#include "torch_xla_cc/registration.h"

namespace xla_cc {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using OpPtr = c10::intrusive_ptr<c10d::ReduceOp>;

// A barrier has no tensors, and torch.distributed calls that of the CPU where it finds no
// accelerator. A group that has XLA devices has work on them to wait for.
c10::intrusive_ptr<c10d::Backend> BarrierBackendOf(const GroupPtr& group) {
  for (const c10::Device& device : group->getDeviceTypes()) {
    if (device.type() == at::kXLA) return BackendOf(group);
  }
  return group->getBackend(c10::DeviceType::CPU);
}

// The backend, for one call, which ends what is coalesced if it raises. (What torch.distributed
// keeps of it _runtime/coalescing.py ends.)
class Calling {
 public:
  explicit Calling(const GroupPtr& group) : backend_(BackendOf(group)) {}
  Calling(const Calling&) = delete;
  ~Calling() {
    if (std::uncaught_exceptions() == before_) return;
    if (auto* ours = dynamic_cast<XlaBackend*>(backend_.get())) ours->StopCoalescing();
  }
  c10d::Backend* operator->() const { return backend_.get(); }

 private:
  const c10::intrusive_ptr<c10d::Backend> backend_;
  const int before_ = std::uncaught_exceptions();
};

template <class Options>
Options With(bool async_op, int64_t timeout) {
  Options options;
  options.asyncOp = async_op;
  options.timeout = Timeout(timeout);
  return options;
}

// What c10d writes to has no gradient, and a leaf may be written to: no autograd in any of these.
using NoAutograd = at::AutoDispatchBelowADInplaceOrView;

namespace kernels {  // not the nodes of these names

std::tuple<Tensors, WorkPtr> Broadcast(at::TensorList tensors, const GroupPtr& group, int64_t root,
                                       int64_t, bool async_op, int64_t timeout) {
  const NoAutograd guard;
  auto options = With<c10d::BroadcastOptions>(async_op, timeout);
  options.rootRank = root;
  Tensors list = tensors.vec();
  WorkPtr work = Calling(group)->broadcast(list, options);
  return {std::move(list), std::move(work)};
}

std::tuple<Tensors, WorkPtr> Allreduce(at::TensorList tensors, const GroupPtr& group,
                                       const OpPtr& op, const std::optional<at::Tensor>& sparse,
                                       bool async_op, int64_t timeout) {
  TORCH_CHECK(!sparse, "allreduce: sparse tensors are not taken on XLA devices");
  const NoAutograd guard;
  auto options = With<c10d::AllreduceOptions>(async_op, timeout);
  options.reduceOp = *op;
  Tensors list = tensors.vec();
  WorkPtr work = Calling(group)->allreduce(list, options);
  return {std::move(list), std::move(work)};
}

WorkPtr AllreduceCoalesced(at::TensorList tensors, const GroupPtr& group, const OpPtr& op,
                           bool async_op, int64_t timeout) {
  const NoAutograd guard;
  auto options = With<c10d::AllreduceCoalescedOptions>(async_op, timeout);
  options.reduceOp = *op;
  Tensors list = tensors.vec();
  return Calling(group)->allreduce_coalesced(list, options);
}

WorkPtr Reduce(at::TensorList tensors, const GroupPtr& group, const OpPtr& op, int64_t root,
               int64_t, bool async_op, int64_t timeout) {
  const NoAutograd guard;
  auto options = With<c10d::ReduceOptions>(async_op, timeout);
  options.reduceOp = *op;
  options.rootRank = root;
  Tensors list = tensors.vec();
  return Calling(group)->reduce(list, options);
}

std::tuple<std::vector<Tensors>, WorkPtr> Allgather(const std::vector<Tensors>& outputs,
                                                    at::TensorList inputs, const GroupPtr& group,
                                                    bool async_op, int64_t timeout) {
  const NoAutograd guard;
  Tensors list = inputs.vec();
  auto lists = outputs;
  WorkPtr work =
      Calling(group)->allgather(lists, list, With<c10d::AllgatherOptions>(async_op, timeout));
  return {std::move(lists), std::move(work)};
}

std::tuple<at::Tensor, WorkPtr> AllgatherBase(at::Tensor& output, at::Tensor& input,
                                              const GroupPtr& group, bool async_op,
                                              int64_t timeout) {
  const NoAutograd guard;
  WorkPtr work = Calling(group)->_allgather_base(output, input,
                                                 With<c10d::AllgatherOptions>(async_op, timeout));
  return {output, std::move(work)};
}

WorkPtr AllgatherCoalesced(const std::vector<Tensors>& outputs, const at::TensorList& inputs,
                           const GroupPtr& group, bool async_op) {
  const NoAutograd guard;
  Tensors list = inputs.vec();
  auto lists = outputs;
  return Calling(group)->allgather_coalesced(lists, list,
                                             With<c10d::AllgatherOptions>(async_op, -1));
}

WorkPtr AllgatherIntoCoalesced(at::TensorList outputs, at::TensorList inputs, const GroupPtr& group,
                               bool async_op) {
  const NoAutograd guard;
  Tensors out = outputs.vec();
  Tensors in = inputs.vec();
  return Calling(group)->allgather_into_tensor_coalesced(
      out, in, With<c10d::AllgatherOptions>(async_op, -1));
}

std::tuple<Tensors, WorkPtr> ReduceScatter(const at::TensorList& outputs,
                                           const std::vector<Tensors>& inputs,
                                           const GroupPtr& group, const OpPtr& op, bool async_op,
                                           int64_t timeout) {
  const NoAutograd guard;
  auto options = With<c10d::ReduceScatterOptions>(async_op, timeout);
  options.reduceOp = *op;
  Tensors list = outputs.vec();
  auto lists = inputs;
  WorkPtr work = Calling(group)->reduce_scatter(list, lists, options);
  return {std::move(list), std::move(work)};
}

std::tuple<at::Tensor, WorkPtr> ReduceScatterBase(at::Tensor& output, at::Tensor& input,
                                                  const GroupPtr& group, const OpPtr& op,
                                                  bool async_op, int64_t timeout) {
  const NoAutograd guard;
  auto options = With<c10d::ReduceScatterOptions>(async_op, timeout);
  options.reduceOp = *op;
  WorkPtr work = Calling(group)->_reduce_scatter_base(output, input, options);
  return {output, std::move(work)};
}

WorkPtr ReduceScatterCoalesced(at::TensorList outputs, at::TensorList inputs, const GroupPtr& group,
                               const OpPtr& op, bool async_op, int64_t timeout) {
  const NoAutograd guard;
  auto options = With<c10d::ReduceScatterOptions>(async_op, timeout);
  options.reduceOp = *op;
  Tensors out = outputs.vec();
  Tensors in = inputs.vec();
  return Calling(group)->reduce_scatter_tensor_coalesced(out, in, options);
}

WorkPtr Gather(const std::vector<Tensors>& outputs, const at::TensorList& inputs,
               const GroupPtr& group, int64_t root, bool async_op, int64_t timeout) {
  const NoAutograd guard;
  auto options = With<c10d::GatherOptions>(async_op, timeout);
  options.rootRank = root;
  auto lists = outputs;
  Tensors list = inputs.vec();
  return Calling(group)->gather(lists, list, options);
}

std::tuple<Tensors, WorkPtr> Scatter(const at::TensorList& outputs,
                                     const std::vector<Tensors>& inputs, const GroupPtr& group,
                                     int64_t root, bool async_op, int64_t timeout) {
  const NoAutograd guard;
  auto options = With<c10d::ScatterOptions>(async_op, timeout);
  options.rootRank = root;
  Tensors list = outputs.vec();
  auto lists = inputs;
  WorkPtr work = Calling(group)->scatter(list, lists, options);
  return {std::move(list), std::move(work)};
}

std::tuple<Tensors, WorkPtr> Alltoall(const at::TensorList& outputs, const at::TensorList& inputs,
                                      const GroupPtr& group, bool async_op, int64_t timeout) {
  const NoAutograd guard;
  Tensors out = outputs.vec();
  Tensors in = inputs.vec();
  WorkPtr work = Calling(group)->alltoall(out, in, With<c10d::AllToAllOptions>(async_op, timeout));
  return {std::move(out), std::move(work)};
}

WorkPtr AlltoallBase(at::Tensor& output, at::Tensor& input, const GroupPtr& group,
                     std::vector<int64_t> output_splits, std::vector<int64_t> input_splits,
                     bool async_op, int64_t timeout) {
  const NoAutograd guard;
  return Calling(group)->alltoall_base(output, input, output_splits, input_splits,
                                       With<c10d::AllToAllOptions>(async_op, timeout));
}

WorkPtr Barrier(at::Tensor, const GroupPtr& group, const std::vector<int64_t>& device_ids,
                bool async_op, int64_t timeout) {
  auto options = With<c10d::BarrierOptions>(async_op, timeout);
  options.device_ids = device_ids;
  return BarrierBackendOf(group)->barrier(options);
}

void MonitoredBarrier(at::Tensor, const GroupPtr& group, const std::vector<int64_t>& device_ids,
                      int64_t timeout, bool wait_all_ranks) {
  auto options = With<c10d::BarrierOptions>(false, timeout);
  options.device_ids = device_ids;
  BarrierBackendOf(group)->monitoredBarrier(options, wait_all_ranks);
}

WorkPtr Send(at::TensorList tensors, const GroupPtr& group, int64_t to, int64_t tag) {
  const NoAutograd guard;
  Tensors list = tensors.vec();
  return Calling(group)->send(list, static_cast<int>(to), static_cast<int>(tag));
}

WorkPtr Recv(at::TensorList tensors, const GroupPtr& group, int64_t from, int64_t tag) {
  const NoAutograd guard;
  Tensors list = tensors.vec();
  return Calling(group)->recv(list, static_cast<int>(from), static_cast<int>(tag));
}

WorkPtr RecvAnySource(at::TensorList tensors, const GroupPtr& group, int64_t tag) {
  const NoAutograd guard;
  Tensors list = tensors.vec();
  return Calling(group)->recvAnysource(list, static_cast<int>(tag));
}

}  // namespace kernels

// KERNEL(name in c10d, function)
#define XLA_CC_KERNELS(KERNEL)                                       \
  KERNEL("broadcast_", Broadcast)                                    \
  KERNEL("allreduce_", Allreduce)                                    \
  KERNEL("allreduce_coalesced_", AllreduceCoalesced)                 \
  KERNEL("reduce_", Reduce)                                          \
  KERNEL("allgather_", Allgather)                                    \
  KERNEL("_allgather_base_", AllgatherBase)                          \
  KERNEL("allgather_coalesced_", AllgatherCoalesced)                 \
  KERNEL("allgather_into_tensor_coalesced_", AllgatherIntoCoalesced) \
  KERNEL("reduce_scatter_", ReduceScatter)                           \
  KERNEL("_reduce_scatter_base_", ReduceScatterBase)                 \
  KERNEL("reduce_scatter_tensor_coalesced_", ReduceScatterCoalesced) \
  KERNEL("gather_", Gather)                                          \
  KERNEL("scatter_", Scatter)                                        \
  KERNEL("alltoall_", Alltoall)                                      \
  KERNEL("alltoall_base_", AlltoallBase)                             \
  KERNEL("barrier", Barrier)                                         \
  KERNEL("monitored_barrier_", MonitoredBarrier)                     \
  KERNEL("send", Send)                                               \
  KERNEL("recv_", Recv)                                              \
  KERNEL("recv_any_source_", RecvAnySource)

c10::IValue Unwrapped(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& x = value.toTensor();
    return at::functionalization::impl::isFunctionalTensor(x)
               ? at::functionalization::impl::from_functional_tensor(x)
               : x;
  }
  if (!value.isList()) return value;
  c10::List<c10::IValue> list = value.toList().copy();
  for (size_t i = 0; i < list.size(); ++i) list.set(i, Unwrapped(list.get(i)));
  return list;
}

// XLA tensors are wrapped, so that writing to one that is a view is seen by its base. The writing
// is done by the kernel, in operations that know of this; so it gets them as they are. What is
// wrapped on other devices goes on without its wrapping, as without this kernel.
void Functionalized(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                    torch::jit::Stack* stack) {
  if (keys.has_backend(c10::BackendComponent::XLABit)) {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::XLA), stack);
    return;
  }
  const size_t count = op.schema().arguments().size();
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    (*stack)[i] = Unwrapped((*stack)[i]);
  }
  const at::AutoDispatchSkipFunctionalize guard;
  op.callBoxed(stack);
}

}  // namespace

void RegisterKernels() {
  // Kernels of torch_xla's and of c10d's own are replaced; torch would warn of each.
  const SilentRegistration silent;
  static auto* xla = NewLibrary("c10d", c10::DispatchKey::XLA);
  static auto* functionalize = NewLibrary("c10d", c10::DispatchKey::Functionalize);
#define KERNEL(name, function)         \
  xla->impl(name, &kernels::function); \
  functionalize->impl(name, torch::CppFunction::makeFromBoxedFunction<&Functionalized>());
  XLA_CC_KERNELS(KERNEL)
#undef KERNEL
  static auto* cpu = NewLibrary("c10d", c10::DispatchKey::CPU);
  cpu->impl("barrier", &kernels::Barrier);
  cpu->impl("monitored_barrier_", &kernels::MonitoredBarrier);
  RegisterFunctionalKernels();
}

}  // namespace xla_cc
