#include "torch_xla_cc/distributed/write_into.h"

#include <ATen/ATen.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace xla_cc {

void Write(const at::Tensor& output, const at::Tensor& value) {
  namespace functional = at::functionalization::impl;
  if (output.is_same(value)) return;
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor shaped = value.sizes() == output.sizes() ? value : value.reshape(output.sizes());
  if (!functional::isFunctionalTensor(output) || !functional::isFunctionalTensor(shaped) ||
      output.scalar_type() != shaped.scalar_type()) {
    output.copy_(shaped);
    return;
  }
  // What an operation in place does at its end. copy_ would have the graph copy the value.
  functional::sync(output);
  functional::sync(shaped);
  functional::replace_(output, functional::from_functional_tensor(shaped));
  functional::commit_update(output);
  functional::sync(output);
}

}  // namespace xla_cc
