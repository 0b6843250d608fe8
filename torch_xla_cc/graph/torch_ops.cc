#include "torch_xla_cc/graph/torch_ops.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>

#include "torch_xla_cc/dtypes.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/graph/arguments.h"
#include "torch_xla_cc/graph/attach.h"
#include "torch_xla_cc/graph/target.h"
#include "torch_xla_cc/python_side.h"
#include "torch_xla_cc/registration.h"

namespace xla_cc {
namespace {

// Takes the arguments of the schema off the stack: (Tensor[] operands, fields...).
template <class T>
std::pair<T, std::vector<at::Tensor>> Pop(torch::jit::Stack* stack, size_t count) {
  const auto arguments = torch::jit::last(*stack, count);
  std::vector<at::Tensor> operands = arguments[0].toTensorVector();
  T node;
  StackReader reader(T::kName, arguments.slice(1));
  T::Fields(node, reader);
  torch::jit::drop(*stack, count);
  return {std::move(node), std::move(operands)};
}

// Tensors of the shapes of the results, with nothing in them.
template <class T>
std::vector<at::Tensor> Shaped(const T& node, const std::vector<at::Tensor>& operands) {
  std::vector<hlo::Shape> shapes;
  for (size_t i = 0; i < operands.size(); ++i) {
    shapes.push_back(ShapeOf(T::kName, i, operands[i]));
  }
  const Target target = [] {
    const py::gil_scoped_acquire locked;
    return CurrentTarget();
  }();
  const auto inferred = ResultShapes(node, shapes, target);
  if (!inferred.ok()) throw BadValue(inferred.status().message());
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < operands.size(); ++i) {
    results.push_back(at::empty(inferred.value()[i].dims, operands[i].options()));
  }
  return results;
}

template <class T>
void XlaKernel(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  auto [node, operands] = Pop<T>(stack, op.schema().arguments().size());
  const py::gil_scoped_acquire locked;
  if (BridgeState() == Bridge::kLooks) {  // peers do not: nothing may be left to run
    stack->emplace_back(Shaped(node, operands));
    return;
  }
  std::vector<at::Tensor> results;
  for (const at::Tensor& tensor : AttachTensors(node, operands)) {
    // What is not moved comes back as it is, and an operator may not return its operand.
    const bool same = std::any_of(operands.begin(), operands.end(),
                                  [&](const at::Tensor& x) { return x.is_same(tensor); });
    results.push_back(same ? tensor.clone() : tensor);
  }
  stack->emplace_back(std::move(results));
}

template <class T>
void MetaKernel(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  auto [node, operands] = Pop<T>(stack, op.schema().arguments().size());
  stack->emplace_back(Shaped(node, operands));
}

template <class T>
void Register(torch::Library& schemas, torch::Library& xla, torch::Library& meta,
              torch::Library& autograd) {
  SchemaWriter writer;
  const T node;
  T::Fields(node, writer);
  const std::string schema =
      std::string(T::kName) + "(Tensor[] operands" + writer.text() + ") -> Tensor[]";
  schemas.def(schema.c_str());
  xla.impl(T::kName, torch::CppFunction::makeFromBoxedFunction<&XlaKernel<T>>());
  meta.impl(T::kName, torch::CppFunction::makeFromBoxedFunction<&MetaKernel<T>>());
  // A backward pass through one says that it has no gradient, instead of leaving it out in silence.
  autograd.impl(T::kName, torch::autograd::autogradNotImplementedFallback());
}

// That of torch_xla knows no groups either: it is always one of all ranks.
at::Tensor AllReduceOfTorchXla(const at::Tensor& x, std::string kind, std::string) {
  return AllReduceOfWorld(x, kind);
}

}  // namespace

at::Tensor AllReduceOfWorld(const at::Tensor& x, const std::string& kind) {
  AllReduce node;
  node.reduction.kind = ParseReduceKind("all_reduce", "reduce_type", kind);
  return CallThroughDispatcher(node, {x})[0];
}

void RegisterTorchOps() {
  // For the life of the process, as the operators of any library.
  static auto* schemas =
      new torch::Library(torch::Library::DEF, "xla_cc", std::nullopt, __FILE__, __LINE__);
  const auto kernels = [](c10::DispatchKey key) { return NewLibrary("xla_cc", key); };
  static auto* xla = kernels(c10::DispatchKey::XLA);
  static auto* meta = kernels(c10::DispatchKey::Meta);
  static auto* autograd = kernels(c10::DispatchKey::Autograd);
#define COLLECTIVE(Type, name) Register<Type>(*schemas, *xla, *meta, *autograd);
#include "lowering/collectives.def"
#undef COLLECTIVE
  const char* stock = std::getenv("TORCH_XLA_CC_STOCK_PINS");
  if (stock != nullptr && std::string(stock) == "1") return;
  const SilentRegistration silent;
  static auto* functional = NewLibrary("_c10d_functional", c10::DispatchKey::XLA);
  functional->impl("all_reduce", &AllReduceOfTorchXla);
}

std::vector<at::Tensor> CallThroughDispatcher(const Collective& collective,
                                              const std::vector<at::Tensor>& tensors) {
  torch::jit::Stack stack{tensors};
  Visit(collective, [&](const auto& node) {
    StackWriter writer(&stack);
    std::decay_t<decltype(node)>::Fields(node, writer);
  });
  const std::string name = "xla_cc::" + Name(OpFor(collective));
  c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").callBoxed(&stack);
  return stack.back().toTensorVector();
}

}  // namespace xla_cc
