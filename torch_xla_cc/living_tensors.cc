#include "torch_xla_cc/living_tensors.h"

#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

namespace xla_cc {
namespace {

using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// Not isinstance(), which some objects answer by importing what they stand for.
bool IsTensor(PyObject* object) {
  return THPVariableClass != nullptr &&
         PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0;
}

}  // namespace

std::vector<at::Tensor> LivingTensors() {
  std::vector<at::Tensor> found;
  // No Python runs below, so that the lock stays here: a thread that has let go of the last
  // reference of C++ needs it before it can free a tensor that Python knows.
  const py::list objects = py::module_::import("gc").attr("get_objects")();
  for (const py::handle object : objects) {
    if (!IsTensor(object.ptr())) continue;
    const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
    if (!tensor.defined() || !tensor.key_set().has_backend(c10::BackendComponent::XLABit)) continue;
    auto strong = Weak::reclaim_copy(tensor.unsafeGetTensorImpl()).lock();
    if (strong) found.emplace_back(std::move(strong));
  }
  return found;
}

}  // namespace xla_cc
