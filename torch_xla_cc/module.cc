// The Python bindings of torch_xla_cc._C, thin.
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "lowering/errors.h"
#include "torch_xla_cc/arguments.h"
#include "torch_xla_cc/bind_ranks.h"
#include "torch_xla_cc/distributed/bind.h"
#include "torch_xla_cc/graph.h"
#include "torch_xla_cc/host.h"
#include "torch_xla_cc/library.h"
#include "torch_xla_cc/policy.h"
#include "torch_xla_cc/ranks.h"

namespace xla_cc {
namespace {

PyObject* ranks_disagree = nullptr;      // torch_xla_cc.RanksDisagree
PyObject* mismatch_error = nullptr;      // torch_xla_cc.CollectiveMismatchError
PyObject* timeout_error = nullptr;       // torch_xla_cc.CollectiveTimeoutError
PyObject* fallback_forbidden = nullptr;  // torch_xla_cc.FallbackForbidden

// Sets the Python exception of what is being thrown.
void SetPythonError() {
  try {
    throw;
  } catch (const BadType& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const BadValue& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const CollectiveMismatch& error) {
    PyErr_SetString(mismatch_error, error.what());
  } catch (const CollectiveTimeout& error) {
    PyErr_SetString(timeout_error, error.what());
  } catch (const RanksDisagree& error) {
    PyErr_SetString(ranks_disagree, error.what());
  } catch (const FallbackForbidden& error) {
    PyErr_SetString(fallback_forbidden, error.what());
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

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

py::dict Describe(const Plan& plan) {
  const Lowered& lowered = plan.lowered;
  std::vector<std::string> results;
  for (const hlo::Shape& shape : lowered.results) results.push_back(shape.ToString());
  py::dict out;
  out["op"] = Name(OpFor(lowered.collective));
  out["name"] = lowered.name;
  out["target"] = plan.target.name;
  out["world_size"] = plan.target.world_size;
  out["rule"] = Name(lowered.rule);
  out["why"] = lowered.why;
  out["opcodes"] = lowered.opcodes;
  out["results"] = results;
  out["fingerprint"] = lowered.fingerprint;
  out["wire_bytes"] = lowered.cost.wire_bytes;
  out["memory_bytes"] = lowered.cost.memory_bytes;
  out["native_wire_bytes"] = lowered.native_cost.wire_bytes;
  out["native_memory_bytes"] = lowered.native_cost.memory_bytes;
  out["groups"] = GroupsOf(lowered.collective).Expanded(plan.target.world_size);
  return out;
}

py::dict Describe(const Record& record) {
  py::dict out = Describe(*record.plan);
  std::vector<std::string> operands;
  int64_t bytes = 0;
  for (const hlo::Shape& shape : record.operands) {
    operands.push_back(shape.ToString());
    bytes += shape.Bytes();
  }
  const CallSite site = Resolve(record.site);
  out["rank"] = record.rank;
  out["operands"] = operands;
  out["bytes"] = bytes;
  out["file"] = site.file;
  out["line"] = site.line;
  return out;
}

void BindLowering(py::module_& m) {
  m.def("set_thread_target", [](const std::optional<std::string>& name, int64_t world_size) {
    if (!name) return SetThreadTarget(std::nullopt);
    Result<Target> target = ParseTarget(*name, world_size);
    if (!target.ok()) throw BadValue(target.status().message());
    SetThreadTarget(target.value());
  });
  m.def("thread_target", []() -> std::optional<std::pair<std::string, int64_t>> {
    const auto target = ThreadTarget();
    if (!target) return std::nullopt;
    return std::pair{target->name, target->world_size};
  });
  m.def("current_target", [] {
    const Target& target = CurrentTarget();
    return std::pair{target.name, target.world_size};
  });
  m.def("forget_running_target", &ForgetRunningTarget);
  m.def("set_debug", &SetDebug);
  m.def("debug", &Debug);
  m.def("set_folders", &SetFolders);
  m.def("set_python_functions",
        [](py::object computation_from_module, py::object user_computation,
           py::object running_target, py::object first_token, py::object increment_counter,
           py::object fallback_warning, py::object is_manual) {
          SetPythonFunctions({std::move(computation_from_module), std::move(user_computation),
                              std::move(running_target), std::move(first_token),
                              std::move(increment_counter), std::move(fallback_warning),
                              std::move(is_manual)});
        });
  m.def("set_recording", &SetRecording);
  m.def("take_records", [] {
    std::vector<py::dict> out;
    for (const Record& record : TakeRecords()) out.push_back(Describe(record));
    return out;
  });
  m.def("cache_counts", [] {
    const PlanCache::Counts counts = PlanCache::Get().counts();
    py::dict out;
    out["hits"] = counts.hits;
    out["misses"] = counts.misses;
    out["size"] = counts.size;
    out["capacity"] = counts.capacity;
    return out;
  });
  m.def("set_cache_capacity", [](size_t capacity) {
    if (capacity < 1) throw BadValue("set_cache_capacity: capacity must be at least 1");
    PlanCache::Get().SetCapacity(capacity);
  });
  m.def("clear_cache", [] { PlanCache::Get().Clear(); });
}

// Throws on a name that stands for nothing.
template <class Enum>
Enum Named(const char* what, const std::string& name,
           std::optional<Enum> (*from_name)(const std::string&)) {
  const std::optional<Enum> value = from_name(name);
  if (!value) throw BadValue(std::string("no ") + what + " is called '" + name + "'");
  return *value;
}

std::optional<Op> OpFromName(const std::string& text) {
#define COLLECTIVE(Type, name) \
  if (text == #name) return Op::k##Type;
#include "lowering/collectives.def"
#undef COLLECTIVE
  return std::nullopt;
}

std::optional<Rule> RuleFromName(const std::string& name) {
  for (const Rule rule : {Rule::kNative, Rule::kFallback}) {
    if (name == Name(rule)) return rule;
  }
  return std::nullopt;
}

hlo::ElementType Type(int64_t number) {
  const auto type = hlo::ElementTypeFromNumber(number);
  if (!type) throw BadValue("no element type has the number " + std::to_string(number));
  return *type;
}

void BindCapabilities(py::module_& m) {
  m.def("set_forced_rule", [](const std::optional<std::string>& name) {
    SetForcedRule(name ? std::optional(Named("rule", *name, &RuleFromName)) : std::nullopt);
  });
  m.def("choose",
        [](const std::string& op, const std::string& target_name, int64_t world_size, int64_t type,
           const std::optional<std::string>& reduce, const std::string& form, int64_t group_size) {
          const Result<Target> target = ParseTarget(target_name, world_size);
          if (!target.ok()) throw BadValue(target.status().message());
          Query query{Named("op", op, &OpFromName),       target.value(), Type(type), std::nullopt,
                      Named("form", form, &FormFromName), group_size};
          if (reduce)
            query.reduce = Reduction{Named("kind", *reduce, &ReduceKindFromName)}.InstructionKind();
          const Choice choice = Choose(query);
          return std::tuple{Name(choice.rule), choice.why, choice.lists};
        });
  m.def("register_capability",
        [](const std::string& device, const std::string& op, const std::vector<int64_t>& types,
           const std::vector<std::string>& kinds, const std::vector<std::string>& forms,
           bool native, const std::string& why) {
          // With the kind's own name: cuda is gpu.
          const Result<Target> target = ParseTarget(device, 1);
          if (!target.ok()) throw BadValue(target.status().message());
          Registration entry{
              target.value().device, Named("op", op, &OpFromName), {}, {}, {}, native, why};
          for (int64_t type : types) entry.types.push_back(Type(type));
          for (const auto& kind : kinds) {
            entry.kinds.push_back(Named("kind", kind, &ReduceKindFromName));
          }
          for (const auto& form : forms) entry.forms.push_back(Named("form", form, &FormFromName));
          const int64_t handle = Register(entry);
          PlanCache::Get().Clear();
          return handle;
        });
  m.def("unregister_capability", [](int64_t handle) {
    const bool was_there = Unregister(handle);
    PlanCache::Get().Clear();
    return was_there;
  });
  m.def("set_fallback",
        [](const std::string& name) { SetPolicy(Named("policy", name, &PolicyFromName)); });
  m.def("set_thread_fallback", [](const std::optional<std::string>& name) {
    SetThreadPolicy(name ? std::optional(Named("policy", *name, &PolicyFromName)) : std::nullopt);
  });
  m.def("thread_fallback", []() -> std::optional<std::string> {
    const auto policy = ThreadPolicy();
    return policy ? std::optional(Name(*policy)) : std::nullopt;
  });
  m.def("fallback", [] { return Name(GetPolicy()); });
  m.def("through_host", [](const std::string& op, int64_t channel, const at::Tensor& tensor) {
    ThroughHost(Named("op", op, &OpFromName), channel, tensor);
  });
}

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
    const hlo::ElementType type = Type(number);
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

}  // namespace
}  // namespace xla_cc

PYBIND11_MODULE(_C, m) {
  using namespace xla_cc;  // NOLINT: the module's body is this library's
  ranks_disagree = PyErr_NewExceptionWithDoc(
      "torch_xla_cc.RanksDisagree",
      "The ranks of a group do not make the same collective calls, or one of them never came.",
      PyExc_RuntimeError, nullptr);
  m.attr("RanksDisagree") = py::handle(ranks_disagree);
  mismatch_error = PyErr_NewExceptionWithDoc(
      "torch_xla_cc.CollectiveMismatchError",
      "The ranks of a group made different calls where they must make the same.", ranks_disagree,
      nullptr);
  m.attr("CollectiveMismatchError") = py::handle(mismatch_error);
  timeout_error = PyErr_NewExceptionWithDoc(
      "torch_xla_cc.CollectiveTimeoutError",
      "A rank of the group did not come in time, or has died.", ranks_disagree, nullptr);
  m.attr("CollectiveTimeoutError") = py::handle(timeout_error);
  fallback_forbidden = PyErr_NewExceptionWithDoc(
      "torch_xla_cc.FallbackForbidden",
      "A collective would be lowered by its fallback, at a cost, and the policy is 'error'.",
      PyExc_RuntimeError, nullptr);
  m.attr("FallbackForbidden") = py::handle(fallback_forbidden);
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const BadType&) {
      SetPythonError();
    } catch (const BadValue&) {
      SetPythonError();
    } catch (const RanksDisagree&) {
      SetPythonError();
    } catch (const FallbackForbidden&) {
      SetPythonError();
    }
  });
  if (PyModule_AddFunctions(m.ptr(), collectives) != 0) throw py::error_already_set();
#define COLLECTIVE(Type, name) m.def("lower_" #name, &LowerOnly<Type>);
#include "lowering/collectives.def"
#undef COLLECTIVE
  BindLowering(m);
  BindCapabilities(m);
  BindRanks(m);
  BindDistributed(m);
  RegisterLibrary();
}
