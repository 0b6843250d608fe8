#include "torch_xla_cc/graph/op_gate.h"

#include <ATen/record_function.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace xla_cc {
namespace {

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> closed{false};
  std::thread::id owner;
  bool knocked = false;
  at::CallbackHandle callback = 0;
};
State& TheState() {
  static auto* state = new State;  // never destroyed: threads may outlive main
  return *state;
}

bool IsOfXla(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() && value.toTensor().is_xla();
  if (value.isDevice()) return value.toDevice().type() == at::kXLA;
  if (!value.isTensorList()) return false;
  const c10::List<at::Tensor> list = value.toTensorList();
  return std::any_of(list.begin(), list.end(), [](const at::Tensor& x) { return x.is_xla(); });
}

// What runs the graph may need the interpreter lock.
void WaitUntilOpen() {
  State& state = TheState();
  std::optional<py::gil_scoped_release> unlocked;
  if (PyGILState_Check()) unlocked.emplace();
  std::unique_lock lock(state.mutex);
  state.knocked = true;
  state.changed.notify_all();
  state.changed.wait(lock, [&] { return !state.closed; });
}

std::unique_ptr<at::ObserverContext> BeforeOperator(const at::RecordFunction& function) {
  const auto inputs = function.inputs();
  if (TheState().owner != std::this_thread::get_id() &&
      std::any_of(inputs.begin(), inputs.end(), IsOfXla)) {
    WaitUntilOpen();
  }
  return nullptr;
}

}  // namespace

OpGate::OpGate() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.owner = std::this_thread::get_id();
  state.closed = true;
  state.knocked = false;
  state.callback = at::addGlobalCallback(at::RecordFunctionCallback(&BeforeOperator)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
}

OpGate::~OpGate() {
  State& state = TheState();
  at::removeCallback(state.callback);
  const std::lock_guard lock(state.mutex);
  state.closed = false;
  state.changed.notify_all();
}

bool OpGate::IsQuiet(std::chrono::milliseconds time) const {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  return !state.changed.wait_for(lock, time, [&] { return state.knocked; });
}

void OpGate::Pass() {
  const State& state = TheState();
  if (state.closed && state.owner != std::this_thread::get_id()) WaitUntilOpen();
}

}  // namespace xla_cc
