#include "torch_xla_cc/threads/read_hooks.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ScopeExit.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "torch_xla_cc/registration.h"

namespace xla_cc {
namespace {

// Everything that ends in host memory, or on the device of another rank: .item(), .cpu(), copies,
// printing, and each operator that torch_xla has not and runs on the CPU (through _to_cpu).
constexpr const char* kReaders[] = {
    "_local_scalar_dense",   "_to_copy", "copy",   "copy_", "_copy_from",
    "_copy_from_and_resize", "_to_cpu",  "nonzero"};

// The hooks, while they are in place. Kernels on other threads may still be in them when they are
// taken out, so each holds what it uses.
struct Hooks {
  BeforeRead before_read;
  std::unordered_map<c10::OperatorName, c10::SafeKernelFunction> originals;
};
struct InPlace {
  std::mutex mutex;
  std::shared_ptr<const Hooks> hooks;
  std::unique_ptr<torch::Library> kernels;  // who opens and closes takes turns
};
InPlace& TheInPlace() {
  static auto* in_place = new InPlace;  // never destroyed: threads may outlive main
  return *in_place;
}

std::shared_ptr<const Hooks> TheHooks() {
  const std::lock_guard<std::mutex> lock(TheInPlace().mutex);
  return TheInPlace().hooks;
}

thread_local int64_t reads = 0;
std::atomic<int64_t> under_way = 0;

std::vector<at::Tensor> TensorsOf(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  return {};
}

// Whether what is copied from a device to another stays on it. XLA without an index is the rank's.
bool Stays(c10::Device from, c10::Device to) {
  return to.type() == from.type() && (!to.has_index() || to.index() == from.index());
}

// Which argument of a call is read.
size_t SourceOf(const std::string& op) {
  return op == "aten::copy" || op == "aten::copy_" ? 1 : 0;  // (self, src, ...)
}

bool IsRead(const at::Tensor& x) { return x.defined() && x.device().type() == at::kXLA; }

// The argument with `read` in place of those of its tensors that are read.
c10::IValue WithRead(const c10::IValue& argument, const std::vector<at::Tensor>& read) {
  std::vector<at::Tensor> tensors = TensorsOf(argument);
  auto next = read.begin();
  for (at::Tensor& x : tensors) {
    if (IsRead(x)) x = *next++;
  }
  return argument.isTensor() ? c10::IValue(tensors.front()) : c10::IValue(tensors);
}

// The XLA device that the call reads from, or -1 if the result stays there.
int64_t ReadsFrom(const std::string& op, c10::ArrayRef<c10::IValue> arguments,
                  std::vector<at::Tensor>* read) {
  const bool from_second = SourceOf(op) == 1;
  for (at::Tensor& x : TensorsOf(arguments[SourceOf(op)])) {
    if (IsRead(x)) read->push_back(std::move(x));
  }
  if (read->empty()) return -1;
  const c10::Device from = read->front().device();
  bool stays = false;
  if (op == "aten::_to_copy") {  // (self, dtype, layout, device, ...)
    const auto to = arguments[3].toOptional<c10::Device>();
    stays = !to || Stays(from, *to);
  } else if (from_second || op == "aten::_copy_from" ||
             op == "aten::_copy_from_and_resize") {  // (self, dst, ...)
    stays = Stays(from, arguments[from_second ? 0 : 1].toTensor().device());
  }
  return stays ? -1 : from.index();
}

void Kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const std::shared_ptr<const Hooks> own = TheHooks();
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  std::vector<at::Tensor> sources;
  const std::string& name = op.operator_name().name;
  const int64_t rank = ReadsFrom(name, arguments, &sources);
  if (!own) {  // taken out since the call was dispatched: torch_xla's kernel is back
    op.redispatchBoxed(keys, stack);
    return;
  }
  ++under_way;
  const auto ended = c10::make_scope_exit([] { --under_way; });
  Reading reading;
  if (rank >= 0) {
    ++reads;
    reading = own->before_read(rank, sources);
  }
  if (!reading.instead.empty()) {
    c10::IValue& argument = (*stack)[stack->size() - arguments.size() + SourceOf(name)];
    argument = WithRead(argument, reading.instead);
  }
  own->originals.at(op.operator_name()).callBoxed(op, keys, stack);
}

}  // namespace

int64_t Reads() { return reads; }
bool ReadsUnderWay() { return under_way > 0; }

void OpenReadHooks(BeforeRead before_read) {
  CloseReadHooks();
  auto opened = std::make_shared<Hooks>();
  opened->before_read = std::move(before_read);
  auto kernels = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                  c10::DispatchKey::XLA, __FILE__, __LINE__);
  for (const char* name : kReaders) {
    const c10::OperatorName operator_name(std::string("aten::") + name, "");
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(operator_name.name.c_str(), "");
    opened->originals.emplace(operator_name,
                              op.getComputedKernelForDispatchKey(c10::DispatchKey::XLA));
  }
  {
    const std::lock_guard<std::mutex> lock(TheInPlace().mutex);
    TheInPlace().hooks = std::move(opened);  // there are none: they were taken out above
  }
  const SilentRegistration silent;
  for (const char* name : kReaders) {
    kernels->impl(name, torch::CppFunction::makeFromBoxedFunction<&Kernel>());
  }
  TheInPlace().kernels = std::move(kernels);
}

void CloseReadHooks() {
  TheInPlace().kernels.reset();          // first: while they stand, a call looks up the originals
  std::shared_ptr<const Hooks> dropped;  // without the lock: it may let go of Python's function
  const std::lock_guard<std::mutex> lock(TheInPlace().mutex);
  dropped.swap(TheInPlace().hooks);
}

}  // namespace xla_cc
