#include "torch_xla_cc/graph/meta_kernels.h"

#include <ATen/MetaFunctions.h>
#include <ATen/Operators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "torch_xla_cc/registration.h"

namespace xla_cc {
namespace {

using torch::jit::Stack;

// Neither symbolic, nor of a class in Python, as what torch.compile traces with.
bool Plain(const c10::IValue& arg) {
  if (!arg.isTensor()) return !arg.isSymInt() && !arg.isSymFloat() && !arg.isSymBool();
  const at::TensorImpl& x = *arg.unsafeToTensorImpl();
  return !x.has_symbolic_sizes_strides() && !x.key_set().has(c10::DispatchKey::Python);
}

// Whether this is the check of a write, and not a tensor of the script that has no data.
bool OfWrite() { return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Functionalize); }

class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(c10::KernelFunction plain, c10::SafeKernelFunction stock)
      : plain_(std::move(plain)), stock_(std::move(stock)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const auto args = torch::jit::last(*stack, op.schema().arguments().size());
    if (OfWrite() && std::all_of(args.begin(), args.end(), &Plain)) {
      Stack given(args.begin(), args.end());
      try {
        plain_.callBoxed(op, keys, &given);
        torch::jit::drop(*stack, args.size());
        return stack->push_back(std::move(given.back()));
      } catch (const c10::Error&) {  // what it refuses torch's may take, or say as it does
      }
    }
    stock_.callBoxed(op, keys, stack);
  }

 private:
  const c10::KernelFunction plain_;
  const c10::SafeKernelFunction stock_;
};

template <class Op>
void Register(torch::Library& aten, typename Op::schema* plain) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
  auto kernel =
      std::make_unique<Kernel>(c10::KernelFunction::makeFromUnboxedRuntimeFunction(plain),
                               op.getComputedKernelForDispatchKey(c10::DispatchKey::Meta));
  const auto name = c10::toString(op.operator_name());
  aten.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
}

}  // namespace

void RegisterMetaKernels() {
  const SilentRegistration silent;
  static auto* aten = NewLibrary("aten", c10::DispatchKey::Meta);
#define ONE(op) Register<at::_ops::op>(*aten, &at::meta::op);
#define OF(op, overload) Register<at::_ops::op##_##overload>(*aten, &at::meta::op);
#include "torch_xla_cc/graph/meta_kernels.def"
#undef OF
#undef ONE
}

}  // namespace xla_cc
