#include "torch_xla_cc/graph/op_gate.h"

#include <ATen/record_function.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/graph/tokens.h"

namespace xla_cc {
namespace {

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> closed{false};
  std::atomic<std::thread::id> owner;
  const pid_t process = getpid();
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
void Wait(bool knocks) {
  State& state = TheState();
  if (getpid() != state.process) return;  // a child that was forked meanwhile: no thread opens it
  Unlocked([&] {
    std::unique_lock lock(state.mutex);
    if (knocks) state.knocked = true;
    state.changed.notify_all();
    state.changed.wait(lock, [&] { return !state.closed; });
  });
}

int WaitInMain(void*) {
  if (TheState().closed && !ChainTurn::OfThisThread()) Wait(/*knocks=*/false);
  return 0;
}

std::unique_ptr<at::ObserverContext> BeforeOperator(const at::RecordFunction& function) {
  const auto inputs = function.inputs();
  if (std::any_of(inputs.begin(), inputs.end(), IsOfXla)) OpGate::Pass();
  return nullptr;
}

}  // namespace

OpGate::OpGate() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.owner = std::this_thread::get_id();
  state.knocked = false;
  state.callback = at::addGlobalCallback(at::RecordFunctionCallback(&BeforeOperator)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  state.closed = true;
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

void OpGate::Park() { Py_AddPendingCall(&WaitInMain, nullptr); }

void OpGate::Pass() {
  const State& state = TheState();
  if (state.closed && state.owner != std::this_thread::get_id() && !ChainTurn::OfThisThread()) {
    Wait(/*knocks=*/true);
  }
}

}  // namespace xla_cc
