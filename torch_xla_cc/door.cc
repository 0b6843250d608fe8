#include "torch_xla_cc/door.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <memory>
#include <unordered_map>

namespace xla_cc {
namespace {

// Everything that ends in host memory, or on the device of another rank: .item(), .cpu(), copies,
// printing, and each operator that torch_xla has not and runs on the CPU (through _to_cpu).
constexpr const char* kReaders[] = {
    "_local_scalar_dense",   "_to_copy", "copy",   "copy_", "_copy_from",
    "_copy_from_and_resize", "_to_cpu",  "nonzero"};

struct Door {
  std::function<void(int64_t)> before_read;
  std::unordered_map<c10::OperatorName, c10::SafeKernelFunction> originals;
  std::unique_ptr<torch::Library> library;
};

Door*& TheDoor() {
  static Door* door = nullptr;
  return door;
}

int64_t& ReadsOfThread() {
  thread_local int64_t reads = 0;
  return reads;
}

at::Tensor FirstTensor(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  if (value.isTensorList() && !value.toTensorList().empty()) return value.toTensorList().get(0);
  return {};
}

// Whether what is copied from a device to another stays on it. XLA without an index is the rank's.
bool Stays(c10::Device from, c10::Device to) {
  return to.type() == from.type() && (!to.has_index() || to.index() == from.index());
}

// The XLA device that the call reads from, or -1 if the result stays there.
int64_t ReadsFrom(const std::string& op, c10::ArrayRef<c10::IValue> arguments) {
  const bool from_second = op == "aten::copy" || op == "aten::copy_";  // (self, src, ...)
  const at::Tensor source = FirstTensor(arguments[from_second ? 1 : 0]);
  if (!source.defined() || source.device().type() != at::kXLA) return -1;
  const c10::Device from = source.device();
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
  Door& door = *TheDoor();
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const int64_t rank = ReadsFrom(op.operator_name().name, arguments);
  if (rank >= 0) {
    ++ReadsOfThread();
    door.before_read(rank);
  }
  door.originals.at(op.operator_name()).callBoxed(op, keys, stack);
}

// torch warns when a kernel takes another's place; here that is what is meant.
class Silence : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

int64_t Reads() { return ReadsOfThread(); }

void OpenDoor(std::function<void(int64_t)> before_read) {
  CloseDoor();
  auto* door = new Door;
  door->before_read = std::move(before_read);
  door->library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                   c10::DispatchKey::XLA, __FILE__, __LINE__);
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  TheDoor() = door;
  for (const char* name : kReaders) {
    const c10::OperatorName operator_name(std::string("aten::") + name, "");
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(operator_name.name.c_str(), "");
    door->originals.emplace(operator_name,
                            op.getComputedKernelForDispatchKey(c10::DispatchKey::XLA));
    door->library->impl(name, torch::CppFunction::makeFromBoxedFunction<&Kernel>());
  }
}

void CloseDoor() {
  // The kernels go first: while they stand, a call looks up the originals.
  if (TheDoor() == nullptr) return;
  TheDoor()->library.reset();
  delete std::exchange(TheDoor(), nullptr);
}

}  // namespace xla_cc
