// Where C++ calls Python: functions that the package hands over when it is imported, and nothing
// that is looked up by name. Exceptions cross as what they are, both ways.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <utility>

namespace xla_cc {

// Each with the module that it is of.
#define XLA_CC_PYTHON_SIDE(FUNCTION)                              \
  FUNCTION(computation_from_module) /* torch_xla._XLAC */         \
  FUNCTION(user_computation)        /* torch_xla._XLAC */         \
  FUNCTION(stand_in)                /* _runtime.stand_ins */      \
  FUNCTION(increment_counter)       /* torch_xla._XLAC */         \
  FUNCTION(running_target)          /* _runtime.device */         \
  FUNCTION(first_token)             /* _threads.read_hooks */     \
  FUNCTION(needs_run)               /* _runtime.device_tensors */ \
  FUNCTION(run_live)                /* _runtime.device_tensors */ \
  FUNCTION(to_dlpack)               /* _runtime.device_tensors */ \
  FUNCTION(from_dlpack)             /* _runtime.device_tensors */ \
  FUNCTION(fallback_warning)        /* torch_xla_cc, a class */   \
  FUNCTION(is_manual)               /* _ops.partitions */         \
  FUNCTION(place_of_view)           /* _ops.views */              \
  FUNCTION(repeats)                 /* _ops.views */              \
  FUNCTION(run_pending)             /* _threads.read_hooks */     \
  FUNCTION(run_graph)               /* _threads.read_hooks */     \
  FUNCTION(drop_pending)            /* _threads.read_hooks */     \
  FUNCTION(answer_peers)            /* _processes.agreement */    \
  FUNCTION(run_alone)               /* _processes.agreement */    \
  FUNCTION(run_at_end)              /* _processes.agreement */    \
  FUNCTION(bridge_state)            /* _threads.compile_bridge */ \
  FUNCTION(refuse_capture)          /* _threads.compile_bridge */

struct PythonSide {
#define FUNCTION(name) py::object name;
  XLA_CC_PYTHON_SIDE(FUNCTION)
#undef FUNCTION
};

// All of them by name, and no other.
void SetPythonSide(const py::dict& functions);
// Needs the interpreter lock.
const PythonSide& Python();

// Where torch_xla's bridge for torch.compile is on this thread: it calls operators to see what they
// are, and once more to capture the graph that it compiles; what it then runs is no call of ours.
enum class Bridge { kAway, kLooks, kCaptures };
Bridge BridgeState();  // takes the interpreter lock

// The exceptions of the extension module.
void AddExceptions(py::module_& m);
// Sets the Python exception of what is being thrown.
void SetPythonError();
// Throws what `error` is in C++: an exception of ours as its type.
[[noreturn]] void Rethrow(py::error_already_set& error);

// Calls a function of Python that may come back here, and raise what was thrown.
template <class... Arguments>
py::object CallPython(const py::object& function, Arguments&&... arguments) {
  try {
    return function(std::forward<Arguments>(arguments)...);
  } catch (py::error_already_set& error) {
    Rethrow(error);
  }
}

}  // namespace xla_cc
