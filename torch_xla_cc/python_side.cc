#include "torch_xla_cc/python_side.h"

#include <array>
#include <string>
#include <type_traits>

#include "torch_xla_cc/errors.h"

namespace xla_cc {
namespace {

// Set when the package is imported, and not looked up on first use: an import inside a static
// initializer lets the interpreter lock go while other threads wait for the initializer with it.
// Never destroyed: threads may outlive the interpreter.
PythonSide*& Side() {
  static PythonSide* side = nullptr;
  return side;
}

template <class Error>
[[noreturn]] void ThrowAs(const std::string& text, uint64_t failure) {
  if constexpr (std::is_base_of_v<RanksDisagree, Error>) {
    throw Error(text, failure);
  } else {
    throw Error(text);
  }
}

template <class Error>
bool Is(const std::exception& error) {
  return dynamic_cast<const Error*>(&error) != nullptr;
}

// An exception in both languages.
struct Crossing {
  const char* name;  // of the module's attribute
  const char* base;  // another's; none: RuntimeError
  const char* doc;   // none: Python's own exception of that name
  bool (*is)(const std::exception&);
  void (*throw_as)(const std::string&, uint64_t failure);
  PyObject* python = nullptr;
};

// What is derived stands after its base.
std::array<Crossing, 6>& Crossings() {
  static std::array<Crossing, 6> crossings{{
      {"TypeError", nullptr, nullptr, &Is<BadType>, &ThrowAs<BadType>},
      {"ValueError", nullptr, nullptr, &Is<BadValue>, &ThrowAs<BadValue>},
      {"RanksDisagree", nullptr,
       "The ranks of a group do not make the same collective calls, or one of them never came.",
       &Is<RanksDisagree>, &ThrowAs<RanksDisagree>},
      {"CollectiveMismatchError", "RanksDisagree",
       "The ranks of a group made different calls where they must make the same.",
       &Is<CollectiveMismatch>, &ThrowAs<CollectiveMismatch>},
      {"CollectiveTimeoutError", "RanksDisagree",
       "A rank of the group did not come in time, or has died.", &Is<CollectiveTimeout>,
       &ThrowAs<CollectiveTimeout>},
      {"FallbackForbidden", nullptr,
       "A collective would be lowered by its fallback, at a cost, and the policy is 'error'.",
       &Is<FallbackForbidden>, &ThrowAs<FallbackForbidden>},
  }};
  return crossings;
}

// On its way through Python a failure of ranks keeps its number.
constexpr const char* kFailure = "_failure";

void Set(PyObject* type, const char* text, uint64_t failure) {
  PyErr_SetString(type, text);
  if (failure == 0) return;
  py::error_already_set raised;
  py::setattr(raised.value(), kFailure, py::int_(failure));
  raised.restore();
}

}  // namespace

void SetPythonSide(const py::dict& functions) {
  auto side = std::make_unique<PythonSide>();
  size_t taken = 0;
  const auto take = [&](const char* name, py::object& slot) {
    if (!functions.contains(name)) {
      throw BadValue(std::string("set_python_side: ") + name + " is missing");
    }
    slot = functions[name];
    ++taken;
  };
#define FUNCTION(name) take(#name, side->name);
  XLA_CC_PYTHON_SIDE(FUNCTION)
#undef FUNCTION
  if (taken != functions.size()) {
    throw BadValue("set_python_side: " + std::to_string(functions.size()) + " functions, but it " +
                   "takes " + std::to_string(taken));
  }
  delete std::exchange(Side(), side.release());
}

const PythonSide& Python() { return *Side(); }

Bridge BridgeState() {
  const py::gil_scoped_acquire locked;
  return static_cast<Bridge>(Python().bridge_state().cast<int>());
}

void AddExceptions(py::module_& m) {
  for (Crossing& crossing : Crossings()) {
    if (crossing.doc == nullptr) {
      crossing.python =
          py::object(py::module_::import("builtins").attr(crossing.name)).release().ptr();
      continue;
    }
    const py::object base =
        crossing.base == nullptr ? py::object() : py::object(m.attr(crossing.base));
    crossing.python = PyErr_NewExceptionWithDoc(
        (std::string("torch_xla_cc.") + crossing.name).c_str(), crossing.doc,
        crossing.base == nullptr ? PyExc_RuntimeError : base.ptr(), nullptr);
    if (crossing.python == nullptr) throw py::error_already_set();
    m.attr(crossing.name) = py::handle(crossing.python);
  }
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
}

void SetPythonError() {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    const auto& all = Crossings();
    for (auto crossing = all.rbegin(); crossing != all.rend(); ++crossing) {
      if (!crossing->is(error)) continue;
      const auto* disagree = dynamic_cast<const RanksDisagree*>(&error);
      return Set(crossing->python, error.what(), disagree == nullptr ? 0 : disagree->failure);
    }
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void Rethrow(py::error_already_set& error) {
  const auto& all = Crossings();
  for (auto crossing = all.rbegin(); crossing != all.rend(); ++crossing) {
    if (crossing->doc != nullptr && error.matches(crossing->python)) {
      const py::object failure = py::getattr(error.value(), kFailure, py::int_(0));
      crossing->throw_as(py::str(error.value()), failure.cast<uint64_t>());
    }
  }
  throw;  // NOLINT: from within its handler
}

}  // namespace xla_cc
