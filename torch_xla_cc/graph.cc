#include "torch_xla_cc/graph.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/torch.h>

#include <atomic>
#include <cstdlib>
#include <map>

#include "lowering/errors.h"
#include "torch_xla_cc/arguments.h"
#include "torch_xla_cc/policy.h"
#include "torch_xla_cc/ranks.h"

namespace xla_cc {
namespace {

// Python functions of torch_xla and of our package. Set when the package is imported, and not
// looked up on first use: an import inside a static initializer lets the interpreter lock go while
// other threads wait for the initializer with it.
PythonFunctions*& Functions() {
  static PythonFunctions* functions = nullptr;
  return functions;
}

const PythonFunctions& Python() { return *Functions(); }

std::optional<Target>& ThreadTargetSlot() {
  thread_local std::optional<Target> target;
  return target;
}

// torch_xla's SPMD mode, which a program enters when it has begun: by xr.use_spmd().
bool IsSpmd() {
  const char* value = std::getenv("XLA_USE_SPMD");
  return value != nullptr && *value != '\0';
}

// Written under the interpreter lock. One for each mode.
std::optional<Target>& RunningTargetSlot(bool spmd) {
  static std::optional<Target> targets[2];
  return targets[spmd ? 1 : 0];
}

std::optional<Rule>& ForcedRuleSlot() {
  thread_local std::optional<Rule> rule;
  return rule;
}

std::atomic<bool> debug{false};
std::atomic<bool> recording{false};

// These three are guarded by the interpreter lock.
std::vector<Record>& Records() {
  static auto* records = new std::vector<Record>;
  return *records;
}
std::map<int64_t, PyObject*>& Tokens() {
  static auto* tokens = new std::map<int64_t, PyObject*>;
  return *tokens;
}

// The computation object of torch_xla for a plan, made once.
void EnsureComputation(const Plan& plan) {
  if (plan.computation != nullptr) return;
  const std::string name = std::string("xla_cc.") + Name(OpFor(plan.lowered.collective));
  py::object made = Python().computation_from_module(name, py::bytes(plan.lowered.bytes));
  py::str op_name = "xla_cc::" + Name(OpFor(plan.lowered.collective));
  plan.computation = made.release().ptr();
  plan.op_name = op_name.release().ptr();
}

// The tensors of the module's results, in order; the token taken off and kept for the rank.
std::vector<py::object> CallComputation(const Plan& plan, const std::vector<py::handle>& tensors,
                                        int64_t rank) {
  EnsureComputation(plan);
  const bool takes_token = plan.lowered.takes_token;
  // What is lowered for another target has a token of its own: it never runs with the rank's.
  PyObject* elsewhere = nullptr;
  PyObject** token = ThreadTargetSlot() ? &elsewhere : &Tokens()[rank];
  if (takes_token && *token == nullptr) *token = Python().first_token(rank).release().ptr();

  const std::vector<size_t>& live = plan.lowered.live;
  py::list operands(live.size() + (takes_token ? 1 : 0));
  for (size_t i = 0; i < live.size(); ++i) {
    PyList_SET_ITEM(operands.ptr(), i, tensors[live[i]].inc_ref().ptr());
  }
  if (takes_token) PyList_SET_ITEM(operands.ptr(), live.size(), py::handle(*token).inc_ref().ptr());
  PyObject* args[] = {plan.op_name, operands.ptr(), plan.computation};
  PyObject* returned = PyObject_Vectorcall(Python().user_computation.ptr(), args, 3, nullptr);
  if (returned == nullptr) throw py::error_already_set();
  const py::list list = py::reinterpret_steal<py::list>(returned);
  std::vector<py::object> results;
  for (size_t i = 0; i < live.size(); ++i) {
    // torch_xla takes u16, u32 and u64 of a computation's result for s16, s32 and s64.
    const at::Tensor& result = THPVariable_Unpack(PyList_GET_ITEM(list.ptr(), i));
    const at::ScalarType type = THPVariable_Unpack(tensors[live[i]].ptr()).scalar_type();
    const bool same = result.scalar_type() == type;
    results.push_back(same ? py::object(list[i]) : py::cast(result.to(type)));
  }
  if (takes_token) {
    PyObject* old = *token;
    *token = py::object(list[live.size()]).release().ptr();
    Py_XDECREF(old);
  }
  Py_XDECREF(elsewhere);
  return results;
}

// Outside of a region that is sharded by hand, XLA would take the instruction for one of whole
// tensors, or end the process.
void RequireManual(const std::string& op, const std::vector<py::handle>& tensors,
                   const std::vector<hlo::Shape>& operands) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (Python().is_manual(tensors[i]).cast<bool>()) continue;
    throw BadValue(Refuse({"A5", op, "operand " + std::to_string(i), operands[i].ToString(),
                           "made of what torch_xla.distributed.spmd.enable_manual_sharding has "
                           "returned, since this program is in SPMD mode",
                           "Call it in a region that is sharded by hand: see docs/spmd.md"})
                       .message());
  }
}

}  // namespace

void SetPythonFunctions(PythonFunctions functions) {
  delete std::exchange(Functions(), new PythonFunctions(std::move(functions)));
}

const Target& CurrentTarget() {
  if (ThreadTargetSlot()) return *ThreadTargetSlot();
  std::optional<Target>& running = RunningTargetSlot(IsSpmd());
  if (!running) {
    const auto [name, world_size] =
        Python().running_target().cast<std::pair<std::string, int64_t>>();
    Result<Target> target = ParseTarget(name, world_size);
    if (!target.ok()) throw BadValue(target.status().message());
    running = target.value();
  }
  return *running;
}

void SetThreadTarget(std::optional<Target> target) { ThreadTargetSlot() = std::move(target); }
std::optional<Target> ThreadTarget() { return ThreadTargetSlot(); }
void ForgetRunningTarget() {
  for (const bool spmd : {false, true}) RunningTargetSlot(spmd).reset();
}
void SetForcedRule(std::optional<Rule> rule) { ForcedRuleSlot() = rule; }

void CountFallback(const std::string& op) {
  Python().increment_counter("xla_cc.fallback." + op, 1);
}

void Warn(const std::string& text, const std::string& file, int line) {
  if (PyErr_WarnExplicit(Python().fallback_warning.ptr(), text.c_str(), file.c_str(), line, nullptr,
                         nullptr) != 0) {
    throw py::error_already_set();
  }
}

void SetDebug(bool value) { debug = value; }
bool Debug() { return debug; }
void SetRecording(bool value) { recording = value; }
void Note(Record record) {
  if (recording) Records().push_back(std::move(record));
}
std::vector<Record> TakeRecords() { return std::exchange(Records(), {}); }

void ResetToken(int64_t rank) {
  PyObject* old = std::exchange(Tokens()[rank], nullptr);
  Py_XDECREF(old);
}

void ResetTokens() {
  for (auto& [rank, token] : Tokens()) Py_CLEAR(token);
}

py::object Token(int64_t rank) {
  const auto found = Tokens().find(rank);
  if (found == Tokens().end() || found->second == nullptr) return py::none();
  return py::reinterpret_borrow<py::object>(found->second);
}

PlanPtr PlanFor(const Collective& collective, const std::vector<hlo::Shape>& operands) {
  const Target target = CurrentTarget();
  const CallSite site = Debug() ? Resolve(CurrentSite()) : CallSite();
  Key key;
  key.Add(target.name);
  key("world_size", target.world_size);
  key("op", static_cast<int64_t>(OpFor(collective)));
  Visit(collective, [&](const auto& node) { std::decay_t<decltype(node)>::Fields(node, key); });
  for (const hlo::Shape& operand : operands) key.Add(operand);
  const std::optional<Rule> forced = ForcedRuleSlot();
  if (forced) key("forced", static_cast<int64_t>(*forced) + 1);
  if (!site.file.empty()) {
    key.Add(site.file);
    key("line", static_cast<int64_t>(site.line));
  }
  if (PlanPtr plan = PlanCache::Get().Find(key)) return plan;

  const py::gil_scoped_release unlocked;
  Result<Lowered> lowered = Lower(collective, operands, target, site, forced);
  if (!lowered.ok()) throw BadValue(lowered.status().message());
  return PlanCache::Get().Insert(std::move(key),
                                 std::make_shared<Plan>(std::move(lowered.value()), target));
}

std::vector<py::object> Attach(const Collective& collective,
                               const std::vector<py::handle>& tensors) {
  const std::string op = Name(OpFor(collective));
  std::vector<hlo::Shape> operands;
  operands.reserve(tensors.size());
  int64_t rank = -1;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = THPVariable_Unpack(tensors[i].ptr());
    operands.push_back(ShapeOf(op.c_str(), i, tensor));
    const at::Device device = tensor.device();
    if (device.type() != at::kXLA || (rank >= 0 && device.index() != rank)) {
      throw BadValue(
          Refuse({"A4", op, "operand " + std::to_string(i), "a tensor on " + device.str(),
                  rank < 0 ? "on an XLA device"
                           : "on xla:" + std::to_string(rank) + " as operand 0 is",
                  "Move it: tensor.to(torch_xla.device())"})
              .message());
    }
    rank = device.index();
  }
  const PlanPtr plan = PlanFor(collective, operands);
  if (plan->target.partitioned) RequireManual(op, tensors, operands);
  if (plan->lowered.rule == Rule::kFallback) OnFallback(*plan, operands, CurrentSite());
  const bool threads = plan->target.RanksAreThreads() && !ThreadTargetSlot();
  if (threads || recording) {
    const Site site = CurrentSite();
    if (threads) {
      if (const Failure failure = Ranks::Get().Issue(rank, plan, site)) {
        ResetToken(rank);
        failure.Throw();
      }
    }
    if (recording) Note({rank, plan, operands, site});
  }
  // Nothing to move (a send whose recv does the work): the results are the operands.
  if (plan->lowered.unchanged) {
    std::vector<py::object> same;
    for (py::handle tensor : tensors) same.push_back(py::reinterpret_borrow<py::object>(tensor));
    return same;
  }
  std::vector<py::object> live;
  if (!plan->lowered.live.empty()) live = CallComputation(*plan, tensors, rank);
  if (live.size() == tensors.size()) return live;

  // Operands without elements never reach XLA: what comes of them has none either.
  std::vector<py::object> results(tensors.size());
  for (size_t i = 0; i < live.size(); ++i) results[plan->lowered.live[i]] = live[i];
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i]) continue;
    const at::Tensor& operand = THPVariable_Unpack(tensors[i].ptr());
    results[i] = py::cast(at::empty(plan->lowered.results[i].dims, operand.options()));
  }
  return results;
}

std::vector<at::Tensor> AttachTensors(const Collective& collective,
                                      const std::vector<at::Tensor>& tensors) {
  std::vector<py::object> wrapped;
  std::vector<py::handle> handles;
  for (const at::Tensor& tensor : tensors) {
    wrapped.push_back(py::cast(tensor));
    handles.push_back(wrapped.back());
  }
  std::vector<at::Tensor> results;
  for (const py::object& result : Attach(collective, handles)) {
    results.push_back(THPVariable_Unpack(result.ptr()));
  }
  return results;
}

}  // namespace xla_cc
