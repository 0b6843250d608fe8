#include "torch_xla_cc/living_tensors.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <unordered_map>

namespace xla_cc {
namespace {

using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// Not isinstance(), which some objects answer by importing what they stand for.
bool IsTensor(PyTypeObject* type) {
  return THPVariableClass != nullptr &&
         PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0;
}

}  // namespace

std::vector<at::Tensor> LivingTensors(std::optional<int> generation) {
  std::vector<at::Tensor> found;
  // No Python runs below, so that the lock stays here: a thread that has let go of the last
  // reference of C++ needs it before it can free a tensor that Python knows.
  const py::object get_objects = py::module_::import("gc").attr("get_objects");
  const py::list objects = generation ? get_objects(*generation) : get_objects();
  std::unordered_map<PyTypeObject*, bool> known;  // there are few types of many objects
  for (const py::handle object : objects) {
    const auto [is_tensor, is_new] = known.try_emplace(Py_TYPE(object.ptr()), false);
    if (is_new) is_tensor->second = IsTensor(is_tensor->first);
    if (!is_tensor->second) continue;
    const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
    if (!tensor.defined() || !tensor.key_set().has_backend(c10::BackendComponent::XLABit)) continue;
    auto strong = Weak::reclaim_copy(tensor.unsafeGetTensorImpl()).lock();
    if (strong) found.emplace_back(std::move(strong));
  }
  return found;
}

std::vector<at::Tensor> Unwrapped(const at::Tensor& tensor) {
  namespace functional = at::functionalization;
  if (!functional::impl::isFunctionalTensor(tensor)) return {tensor};
  auto* whole =
      static_cast<functional::FunctionalStorageImpl*>(tensor.storage().unsafeGetStorageImpl());
  return {functional::impl::unsafeGetFunctionalWrapper(tensor)->value(), whole->base()};
}

}  // namespace xla_cc
