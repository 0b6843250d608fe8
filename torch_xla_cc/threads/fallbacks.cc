#include "torch_xla_cc/threads/fallbacks.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

namespace xla_cc {
namespace {

// An operator that torch_xla has no kernel for, so that its fallback is what is found.
constexpr const char* kMissing = "aten::_unique";
// Of torch's dispatcher, where nothing else has a kernel.
constexpr c10::DispatchKey kEndsCalls = c10::DispatchKey::TESTING_ONLY_GenericMode;

// No c10::Error: torch may have been told to print where each of those comes from.
struct Counted {};

void EndCall(const c10::OperatorHandle&, torch::jit::Stack*) { throw Counted(); }

}  // namespace

int64_t NameFallbacks() {
  static auto* named = new std::unordered_set<c10::OperatorName>;
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorHandle> fresh;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || op->schema().arguments().empty() || !named->insert(name).second) continue;
    fresh.push_back(*op);
  }
  if (fresh.empty()) return 0;
  const auto missing = dispatcher.findSchemaOrThrow(kMissing, "");
  if (missing.hasKernelForDispatchKey(c10::DispatchKey::XLA)) {
    throw std::runtime_error(std::string("launch: torch_xla has a kernel of its own for ") +
                             kMissing + ", which stands for those that it has none for");
  }
  const auto fallback = missing.getComputedKernelForDispatchKey(c10::DispatchKey::XLA);
  const c10::DispatchKeySet keys(c10::DispatchKey::XLA);
  // The fallback counts first, and then calls others, to copy what it is given to the CPU. That
  // call ends here, so that the operator is never called.
  torch::Library ends(torch::Library::IMPL, "_", kEndsCalls, __FILE__, __LINE__);
  ends.fallback(torch::CppFunction::makeFromBoxedFunction<&EndCall>());
  const c10::impl::IncludeDispatchKeyGuard guard(kEndsCalls);
  const at::Tensor any = [] {
    const c10::impl::ExcludeDispatchKeyGuard as_ever(kEndsCalls);
    return at::empty({1});
  }();
  for (const c10::OperatorHandle& op : fresh) {
    torch::jit::Stack stack(op.schema().arguments().size());
    stack.front() = any;
    try {
      fallback.callBoxed(op, keys, &stack);
    } catch (const Counted&) {
    }
  }
  return static_cast<int64_t>(fresh.size());
}

}  // namespace xla_cc
