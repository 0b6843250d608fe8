#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/python_variable.h>

#include "lowering/errors.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/graph/arguments.h"
#include "torch_xla_cc/graph/attach.h"
#include "torch_xla_cc/graph/bind.h"
#include "torch_xla_cc/graph/planning.h"
#include "torch_xla_cc/graph/target.h"
#include "torch_xla_cc/graph/torch_ops.h"
#include "torch_xla_cc/python_side.h"

namespace xla_cc {
namespace {

// Tensors that stand for something else (FakeTensor, DTensor) go through the dispatcher.
bool NeedsDispatcher(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_python_dispatch() || tensor.is_meta();
}

// Keeps the tensors: reading the other arguments may run Python code that empties the list.
std::vector<py::object> Operands(const char* op, PyObject* object, bool* is_list) {
  *is_list = !THPVariable_Check(object);
  if (!*is_list) return {py::reinterpret_borrow<py::object>(object)};
  if (!PyList_Check(object) && !PyTuple_Check(object)) {
    throw BadType(Refuse({"A0", op, "operands", Py_TYPE(object)->tp_name,
                          "a tensor, or a list of tensors", "Pass tensors on an XLA device"})
                      .message());
  }
  std::vector<py::object> tensors;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(object, i);
    if (!THPVariable_Check(item)) {
      throw BadType(Refuse({"A0", op, "operand " + std::to_string(i), Py_TYPE(item)->tp_name,
                            "a tensor", "Pass tensors on an XLA device"})
                        .message());
    }
    tensors.push_back(py::reinterpret_borrow<py::object>(item));
  }
  return tensors;
}

// _C.<name>(tensor or list, fields...) -> tensor or list. Not through pybind11: its argument
// matching would cost as much as the rest of the call.
template <class T>
PyObject* CallCollective(PyObject*, PyObject* const* args, Py_ssize_t count) {
  try {
    if (count < 1) throw BadType(std::string(T::kName) + ": argument operands is missing");
    bool is_list = false;
    const std::vector<py::object> held = Operands(T::kName, args[0], &is_list);
    T node;
    PythonReader reader(T::kName, args + 1, static_cast<size_t>(count) - 1);
    T::Fields(node, reader);
    reader.Finish();

    const std::vector<py::handle> tensors(held.begin(), held.end());
    bool dispatch = c10::impl::dispatch_mode_enabled();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& tensor = THPVariable_Unpack(tensors[i].ptr());
      dispatch = dispatch || NeedsDispatcher(tensor);
      if (tensor.is_meta() != THPVariable_Unpack(tensors[0].ptr()).is_meta()) {
        throw BadValue(Refuse({"A4", T::kName, "operand " + std::to_string(i),
                               "a tensor on " + tensor.device().str(), "on the device of operand 0",
                               "Move it: tensor.to(torch_xla.device())"})
                           .message());
      }
    }
    std::vector<py::object> results;
    if (dispatch) {
      std::vector<at::Tensor> operands;
      for (py::handle tensor : tensors) operands.push_back(THPVariable_Unpack(tensor.ptr()));
      const py::gil_scoped_release unlocked;
      const std::vector<at::Tensor> out = CallThroughDispatcher(node, operands);
      const py::gil_scoped_acquire locked;
      for (const at::Tensor& tensor : out) results.push_back(py::cast(tensor));
    } else {
      results = Attach(node, tensors);
    }
    if (!is_list) return results[0].release().ptr();
    py::list list(results.size());
    for (size_t i = 0; i < results.size(); ++i) list[i] = std::move(results[i]);
    return list.release().ptr();
  } catch (...) {
    SetPythonError();
    return nullptr;
  }
}

PyMethodDef collectives[] = {
#define COLLECTIVE(Type, name)                                                                \
  {#name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&CallCollective<Type>)), \
   METH_FASTCALL, nullptr},
#include "lowering/collectives.def"
#undef COLLECTIVE
    {nullptr, nullptr, 0, nullptr},
};

// lower_<name>(shapes, fields...) -> description with the module's bytes and text: what a call
// would become on the current target, without tensors.
template <class T>
py::dict LowerOnly(const std::vector<std::pair<int64_t, std::vector<int64_t>>>& shapes,
                   const py::args& fields) {
  T node;
  std::vector<PyObject*> pointers;
  for (const py::handle field : fields) pointers.push_back(field.ptr());
  PythonReader reader(T::kName, pointers.data(), pointers.size());
  T::Fields(node, reader);
  reader.Finish();
  std::vector<hlo::Shape> operands;
  for (const auto& [number, dims] : shapes) {
    const hlo::ElementType type = TypeOfNumber(number);
    for (int64_t dim : dims) {
      if (dim < 0) throw BadValue("a shape has a negative dimension");
    }
    operands.push_back({type, dims});
  }
  const PlanPtr plan = PlanFor(node, operands);
  py::dict out = Describe(*plan);
  out["bytes"] = py::bytes(plan->lowered.bytes);
  out["text"] = plan->lowered.text;
  return out;
}

// Groups that are no argument of a collective, as those of a matmul in steps: all are written out.
std::vector<std::vector<int64_t>> GroupLists(const std::string& op, const py::object& groups) {
  PyObject* argument = groups.ptr();
  PythonReader reader(op.c_str(), &argument, 1);
  Groups read;
  reader("groups", read);
  const int64_t world = CurrentTarget().world_size;
  const Status status = read.Resolve(op, world);
  if (!status.ok()) throw BadValue(status.message());
  return read.Expanded(world);
}

}  // namespace

void BindCollectives(py::module_& m) {
  m.def("group_lists", &GroupLists);
  if (PyModule_AddFunctions(m.ptr(), collectives) != 0) throw py::error_already_set();
#define COLLECTIVE(Type, name) m.def("lower_" #name, &LowerOnly<Type>);
#include "lowering/collectives.def"
#undef COLLECTIVE
}

}  // namespace xla_cc
