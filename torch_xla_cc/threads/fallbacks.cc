#include "torch_xla_cc/threads/fallbacks.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>

#include <stdexcept>
#include <string>
#include <unordered_set>

namespace xla_cc {
namespace {

// An operator that torch_xla has no kernel for, so that its fallback is what is found.
constexpr const char* kMissing = "aten::_unique";

}  // namespace

int64_t NameFallbacks() {
  static auto* named = new std::unordered_set<c10::OperatorName>;
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto missing = dispatcher.findSchemaOrThrow(kMissing, "");
  if (missing.hasKernelForDispatchKey(c10::DispatchKey::XLA)) {
    throw std::runtime_error(std::string("launch: torch_xla has a kernel of its own for ") +
                             kMissing + ", which stands for those that it has none for");
  }
  const auto fallback = missing.getComputedKernelForDispatchKey(c10::DispatchKey::XLA);
  const c10::DispatchKeySet keys(c10::DispatchKey::XLA);
  // The fallback counts first and then copies the tensors among the arguments to the CPU. One that
  // has no data cannot be copied, so the operator is never called.
  const at::Tensor no_data = at::empty({1}, at::TensorOptions().device(at::kMeta));
  const int64_t before = static_cast<int64_t>(named->size());
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || op->schema().arguments().empty() || !named->insert(name).second) continue;
    torch::jit::Stack stack(op->schema().arguments().size());
    stack.front() = no_data;
    try {
      fallback.callBoxed(*op, keys, &stack);
    } catch (const std::exception&) {  // it always is
    }
  }
  return static_cast<int64_t>(named->size()) - before;
}

}  // namespace xla_cc
