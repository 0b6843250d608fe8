#include "torch_xla_cc/torch_function.h"

namespace xla_cc {
namespace {

// What makes the call, of the handlers; nullptr with no error set where torch is to.
PyObject* Handler(PyObject* self, PyObject* function, PyObject* keywords) {
  PyObject* handler = PyDict_GetItemWithError(PyTuple_GET_ITEM(self, 0), function);
  if (handler || PyErr_Occurred() || !keywords) return handler;
  const int has = PyDict_Contains(keywords, PyTuple_GET_ITEM(self, 1));
  return has == 1 ? PyTuple_GET_ITEM(self, 2) : nullptr;
}

// (mode, function, types, arguments=(), keywords=None)
PyObject* Call(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count < 3 || count > 5) {
    PyErr_Format(PyExc_TypeError, "__torch_function__: %zd arguments; required: 3 to 5", count);
    return nullptr;
  }
  PyObject* keywords = count > 4 && args[4] != Py_None ? args[4] : nullptr;
  const auto given =
      py::reinterpret_steal<py::object>(count > 3 ? PySequence_Tuple(args[3]) : PyTuple_New(0));
  if (!given) return nullptr;
  PyObject* handler = Handler(self, args[1], keywords);
  if (PyErr_Occurred()) return nullptr;
  if (!handler) return PyObject_Call(args[1], given.ptr(), keywords);
  const auto named =
      py::reinterpret_steal<py::object>(keywords ? PyDict_Copy(keywords) : PyDict_New());
  if (!named) return nullptr;
  return PyObject_CallFunctionObjArgs(handler, args[1], given.ptr(), named.ptr(), nullptr);
}

// As CPython wants functions of this kind to be put.
PyMethodDef method = {"__torch_function__",
                      reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&Call)), METH_FASTCALL,
                      nullptr};

}  // namespace

py::object TorchFunction(const py::dict& handlers, const py::str& keyword,
                         const py::object& other) {
  const auto self = py::make_tuple(handlers, keyword, other);
  return py::reinterpret_steal<py::object>(PyCFunction_New(&method, self.ptr()));
}

}  // namespace xla_cc
