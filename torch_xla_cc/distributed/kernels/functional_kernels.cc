// Functional collectives: nodes of a graph by themselves, which torch.compile traces. Those of
// torch_xla know no groups. c10d's own end in the kernels of c10d_kernels.cc.
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/Functional.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "torch_xla_cc/distributed/backend.h"
#include "torch_xla_cc/distributed/call_mode.h"
#include "torch_xla_cc/distributed/kernels/kernels.h"
#include "torch_xla_cc/graph/torch_ops.h"
#include "torch_xla_cc/python_side.h"
#include "torch_xla_cc/registration.h"

namespace xla_cc {
namespace {

[[noreturn]] void RefuseCapture(const char* op) {
  const py::gil_scoped_acquire locked;
  CallPython(Python().refuse_capture, op);
  throw std::logic_error("refuse_capture raises");
}

// The group is the last of the strings.
template <class T>
void TakeName(std::string& name, const T& argument) {
  if constexpr (std::is_same_v<T, std::string>) name = argument;
}

// Whether the call is in the graph, with all that it needs. Split sizes are exchanged outside.
template <class... Args>
bool IsInGraph(const Args&... args) {
  if constexpr ((std::is_same_v<Args, at::SymIntArrayRef> || ...)) return false;
  std::string name;
  (TakeName(name, args), ...);
  const auto backend = BackendOf(c10d::resolve_process_group(name));
  const auto* ours = dynamic_cast<const XlaBackend*>(backend.get());
  return ours != nullptr && ours->MakesNodes();
}

at::Tensor ShapedBySplits(const at::Tensor& input, at::SymIntArrayRef output_splits,
                          at::SymIntArrayRef, const std::string&) {
  auto sizes = input.sym_sizes().vec();
  sizes[0] = 0;
  for (const c10::SymInt& split : output_splits) sizes[0] += split;
  return input.new_empty_symint(sizes);
}

// What a call looks like, and nothing of it done.
template <class Result, class... Args>
Result Shaped(const char* op, Args... args) {
  if constexpr (std::is_same_v<Result, at::Tensor&>) {  // those that write; the output is last
    at::Tensor* output = nullptr;
    const auto take = [&](auto& argument) {
      if constexpr (std::is_same_v<decltype(argument), at::Tensor&>) output = &argument;
    };
    (take(args), ...);
    return *output;
  } else if constexpr ((std::is_same_v<Args, at::SymIntArrayRef> || ...)) {
    return ShapedBySplits(args...);
  } else {
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow(op, "")
        .typed<Result(Args...)>()
        .redispatch(c10::DispatchKeySet(c10::DispatchKey::Meta), args...);
  }
}

// What this thread's bridge, while it looks, got of calls that are not in the graph. Weakly, or the
// next tensor at a place in memory would be taken for the last.
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
thread_local std::vector<WeakTensor> from_host;

void NoteFromHost(const at::Tensor& x) { from_host.emplace_back(x.getIntrusivePtr()); }
bool IsFromHost(const at::Tensor& x) {
  return std::any_of(from_host.begin(), from_host.end(), [&](const WeakTensor& noted) {
    return !noted.expired() && noted._unsafe_get_target() == x.unsafeGetTensorImpl();
  });
}
void NoteFromHost(const Tensors& xs) {
  for (const at::Tensor& x : xs) NoteFromHost(x);
}

// The bridge leaves out of its graphs what reads a tensor on the host.
void LeaveOut() { at::zeros({}).to(at::kXLA).item(); }

// Nothing is left to wait for, but the bridge cannot run a graph that gives what it got.
at::Tensor WaitTensor(const at::Tensor& x) {
  if (IsFromHost(x) && BridgeState() == Bridge::kLooks) {
    LeaveOut();
  }
  return c10d::wait_tensor(x);
}

// torch keeps the Work of each output until somebody waits for it, by a storage that what the
// caller gets from an XLA tensor may not have. All have been waited for.
void ForgetWork(const at::Tensor& x) { c10d::wait_tensor(x); }
void ForgetWork(const Tensors& xs) {
  for (const at::Tensor& x : xs) c10d::wait_tensor(x);
}

// Functional collectives are nodes of a graph by themselves: torch.compile traces them.
template <const char* kOp, auto kFunction, class Signature>
struct Functional;
template <const char* kOp, auto kFunction, class Result, class... Args>
struct Functional<kOp, kFunction, Result(Args...)> {
  static Result Call(Args... args) {
    const Bridge bridge = BridgeState();
    const bool in_graph = bridge == Bridge::kAway || IsInGraph(std::decay_t<Args>(args)...);
    if (bridge == Bridge::kCaptures && !in_graph) RefuseCapture(kOp);
    if (bridge == Bridge::kLooks) {
      decltype(auto) shaped = Shaped<Result, Args...>(kOp, args...);
      if (!in_graph) LeaveOut();
      if (!in_graph) NoteFromHost(shaped);
      return shaped;
    }
    from_host.clear();
    const CallModeScope scope(
        {/*in_graph=*/true, /*waits_at_once=*/true, /*captures=*/bridge == Bridge::kCaptures, {}});
    decltype(auto) result = kFunction(std::forward<Args>(args)...);
    ForgetWork(result);
    return result;
  }
};
#define FUNCTIONAL(name) \
  library.impl(#name, &Functional<ops::name, &c10d::name, decltype(c10d::name)>::Call);

// Names, as template arguments.
namespace ops {
#define OP(name) constexpr char name[] = "_c10d_functional::" #name;
OP(all_reduce)
OP(all_reduce_)
OP(all_reduce_coalesced)
OP(all_reduce_coalesced_)
OP(all_gather_into_tensor_out)
OP(all_gather_into_tensor)
OP(all_gather_into_tensor_coalesced)
OP(reduce_scatter_tensor)
OP(reduce_scatter_tensor_coalesced)
OP(all_to_all_single)
OP(broadcast)
OP(broadcast_)
#undef OP
}  // namespace ops

// torch_xla's own all_reduce calls it with no group.
at::Tensor AllReduceOrTorchXlas(const at::Tensor& x, std::string kind, std::string group) {
  if (group.empty()) return AllReduceOfWorld(x, kind);
  using Ours = Functional<ops::all_reduce, &c10d::all_reduce, decltype(c10d::all_reduce)>;
  return Ours::Call(x, std::move(kind), std::move(group));
}

void RegisterFunctional(torch::Library& library) {
  library.impl("all_reduce", &AllReduceOrTorchXlas);
  FUNCTIONAL(all_reduce_)
  FUNCTIONAL(all_reduce_coalesced)
  FUNCTIONAL(all_reduce_coalesced_)
  FUNCTIONAL(all_gather_into_tensor_out)
  FUNCTIONAL(all_gather_into_tensor)
  FUNCTIONAL(all_gather_into_tensor_coalesced)
  FUNCTIONAL(reduce_scatter_tensor)
  FUNCTIONAL(reduce_scatter_tensor_coalesced)
  FUNCTIONAL(all_to_all_single)
  FUNCTIONAL(broadcast)
  FUNCTIONAL(broadcast_)
  library.impl("wait_tensor", &WaitTensor);
}

}  // namespace

void RegisterFunctionalKernels() {
  RegisterFunctional(*NewLibrary("_c10d_functional", c10::DispatchKey::XLA));
}

}  // namespace xla_cc
