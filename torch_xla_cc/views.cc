#include "torch_xla_cc/views.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/Functions.h>

namespace xla_cc {
namespace {

namespace functional = at::functionalization::impl;

at::Tensor BaseOf(const at::FunctionalTensorWrapper& view) {
  auto* storage = view.storage().unsafeGetStorageImpl();
  return static_cast<at::functionalization::FunctionalStorageImpl*>(storage)->base();
}

}  // namespace

void Follow(const std::vector<at::Tensor>& views) {
  for (const at::Tensor& x : views) {
    if (!functional::isFunctionalTensor(x)) continue;
    auto* view = functional::unsafeGetFunctionalWrapper(x);
    if (view->is_up_to_date()) continue;
    view->apply_updates();
    const at::Tensor& value = view->value();
    if (!BaseOf(*view).is_meta()) {
      view->regenerate_from_base();
    } else if (!value.is_meta()) {
      const at::AutoDispatchSkipFunctionalize below;
      view->replace_(
          at::empty_strided(value.sizes(), value.strides(), value.options().device(at::kMeta)),
          /*from_lazy_regenerate=*/true);
    }
  }
}

}  // namespace xla_cc
