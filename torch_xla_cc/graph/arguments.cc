#include "torch_xla_cc/graph/arguments.h"

#include "lowering/errors.h"
#include "torch_xla_cc/errors.h"

namespace xla_cc {

namespace {

std::string Repr(PyObject* object) {
  constexpr size_t kShown = 100;
  PyObject* text = PyObject_Repr(object);
  if (text == nullptr) {
    PyErr_Clear();
    return "?";
  }
  const char* chars = PyUnicode_AsUTF8(text);
  std::string out = chars == nullptr ? "?" : chars;
  if (chars == nullptr) PyErr_Clear();
  Py_DECREF(text);
  if (out.size() > kShown) out = out.substr(0, kShown) + "...";
  return out + " (" + Py_TYPE(object)->tp_name + ")";
}

bool IsList(PyObject* object) { return PyList_Check(object) || PyTuple_Check(object); }

Pairs ToPairs(const char* op, const char* name, const std::vector<std::vector<int64_t>>& lists) {
  Pairs pairs;
  for (const auto& pair : lists) {
    if (pair.size() != 2) {
      throw BadValue(Refuse({"P0", op, name, "[" + hlo::ToString(pair) + "]",
                             "a pair of two ranks: (source, target)", "Write [[0, 1], [1, 0]]"})
                         .message());
    }
    pairs.emplace_back(pair[0], pair[1]);
  }
  return pairs;
}

}  // namespace

ReduceKind ParseReduceKind(const char* op, const char* name, const std::string& text) {
  if (const auto kind = ReduceKindFromName(text)) return *kind;
  throw BadValue(Refuse({"R0", op, name, "'" + text + "'",
                         "sum, product (mul), min, max, and, or, xor, average or premultiplied_sum",
                         "Use one of the REDUCE_ constants of torch_xla_cc.xla_model"})
                     .message());
}

void PythonReader::Wrong(const char* name, PyObject* value, const char* required) const {
  throw BadType(Refuse({"A1", op_, name, Repr(value), required, "See docs/spec.md"}).message());
}

PyObject* PythonReader::Next(const char* name) {
  if (next_ >= count_) throw BadType(std::string(op_) + ": argument " + name + " is missing");
  return args_[next_++];
}

void PythonReader::Finish() const {
  if (next_ != count_) throw BadType(std::string(op_) + ": too many arguments");
}

int64_t PythonReader::Int(const char* name, PyObject* object) {
  if (PyBool_Check(object) || !PyIndex_Check(object)) Wrong(name, object, "an int");
  PyObject* index = PyNumber_Index(object);
  if (index == nullptr) {
    PyErr_Clear();
    Wrong(name, object, "an int");
  }
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(index, &overflow);
  Py_DECREF(index);
  if (overflow != 0) Wrong(name, object, "an int of 64 bits");
  return value;
}

void PythonReader::operator()(const char* name, int64_t& value) { value = Int(name, Next(name)); }

void PythonReader::operator()(const char* name, std::optional<int64_t>& value) {
  PyObject* object = Next(name);
  if (object != Py_None) value = Int(name, object);
}

void PythonReader::operator()(const char* name, double& value) {
  PyObject* object = Next(name);
  if (PyFloat_CheckExact(object)) {
    value = PyFloat_AS_DOUBLE(object);
    return;
  }
  if (PyBool_Check(object) || !(PyFloat_Check(object) || PyLong_Check(object))) {
    Wrong(name, object, "a number");
  }
  value = PyFloat_AsDouble(object);
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    Wrong(name, object, "a number that a double can hold");
  }
}

void PythonReader::operator()(const char* name, ReduceKind& value) {
  PyObject* object = Next(name);
  if (!PyUnicode_Check(object)) Wrong(name, object, "a string: the name of a reduce kind");
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text == nullptr) {
    PyErr_Clear();
    Wrong(name, object, "a string: the name of a reduce kind");
  }
  value = ParseReduceKind(op_, name, std::string(text, size));
}

namespace {

// A tuple, which holds what it lists: reading a number may run Python code that empties a list.
py::object Items(PyObject* list) {
  return py::reinterpret_steal<py::object>(PySequence_Tuple(list));
}

}  // namespace

std::vector<int64_t> PythonReader::Ints(const char* name, PyObject* object, const char* what) {
  if (!IsList(object)) Wrong(name, object, what);
  const py::object items = Items(object);
  std::vector<int64_t> ints(PyTuple_GET_SIZE(items.ptr()));
  for (size_t i = 0; i < ints.size(); ++i) ints[i] = Int(name, PyTuple_GET_ITEM(items.ptr(), i));
  return ints;
}

std::vector<std::vector<int64_t>> PythonReader::Lists(const char* name, PyObject* object,
                                                      const char* what) {
  if (!IsList(object)) Wrong(name, object, what);
  const py::object outer = Items(object);
  std::vector<std::vector<int64_t>> lists(PyTuple_GET_SIZE(outer.ptr()));
  for (size_t i = 0; i < lists.size(); ++i) {
    lists[i] = Ints(name, PyTuple_GET_ITEM(outer.ptr(), i), what);
  }
  return lists;
}

void PythonReader::operator()(const char* name, Groups& value) {
  PyObject* object = Next(name);
  value = object == Py_None
              ? Groups()
              : Groups(Lists(name, object, "None or lists of ranks: [[0, 1], [2, 3]]"));
}

void PythonReader::operator()(const char* name, Pairs& value) {
  value = ToPairs(op_, name,
                  Lists(name, Next(name), "a list of (source, target) pairs: [[0, 1], [1, 0]]"));
}

void PythonReader::operator()(const char* name, Sizes& value) {
  value = Ints(name, Next(name), "a list of numbers of rows, one a rank: [3, 0, 5, 1]");
}

void PythonReader::operator()(const char* name, SizeMatrix& value) {
  value = Lists(name, Next(name),
                "a list for each rank of the rows that it sends to each: [[0, 2], [3, 1]]");
}

void StackReader::operator()(const char* name, ReduceKind& value) {
  value = ParseReduceKind(op_, name, values_[next_++].toStringRef());
}

void StackReader::operator()(const char* name, Pairs& value) {
  value = ToPairs(op_, name, Lists());
}

std::vector<std::vector<int64_t>> StackReader::Lists() {
  std::vector<std::vector<int64_t>> lists;
  for (const c10::IValue& inner : values_[next_++].toListRef())
    lists.push_back(inner.toIntVector());
  return lists;
}

void StackWriter::Lists(const std::vector<std::vector<int64_t>>& lists) {
  c10::List<c10::List<int64_t>> out;
  for (const auto& inner : lists) out.push_back(c10::List<int64_t>(inner));
  stack_->emplace_back(std::move(out));
}

void StackWriter::operator()(const char*, const Pairs& value) {
  std::vector<std::vector<int64_t>> lists;
  for (const auto& [source, target] : value) lists.push_back({source, target});
  Lists(lists);
}

}  // namespace xla_cc
