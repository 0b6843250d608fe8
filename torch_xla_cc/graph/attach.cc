#include "torch_xla_cc/graph/attach.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/torch.h>

#include <optional>

#include "lowering/errors.h"
#include "torch_xla_cc/call_site.h"
#include "torch_xla_cc/dtypes.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/graph/fallback_policy.h"
#include "torch_xla_cc/graph/noted_calls.h"
#include "torch_xla_cc/graph/op_gate.h"
#include "torch_xla_cc/graph/planning.h"
#include "torch_xla_cc/graph/records.h"
#include "torch_xla_cc/graph/target.h"
#include "torch_xla_cc/graph/tokens.h"
#include "torch_xla_cc/python_side.h"

namespace xla_cc {
namespace {

IssueHook issue_hook = nullptr;
thread_local uint64_t attaching_for = 0;

// The computation object of torch_xla for a plan, made once.
void EnsureComputation(const Plan& plan) {
  if (plan.computation != nullptr) return;
  const std::string op = Name(OpFor(plan.lowered.collective));
  const std::string name = "xla_cc." + op + (plan.in.empty() ? "" : " in " + plan.in);
  py::object made = Python().computation_from_module(name, py::bytes(plan.lowered.bytes));
  py::str op_name = "xla_cc::" + op;
  if (plan.computation != nullptr) return;  // another thread was first, while this one made it
  plan.op_name = op_name.release().ptr();
  plan.computation = made.release().ptr();
}

std::vector<at::Tensor> Unwrapped(const std::vector<py::object>& objects) {
  std::vector<at::Tensor> tensors;
  for (const py::object& object : objects) tensors.push_back(THPVariable_Unpack(object.ptr()));
  return tensors;
}

// The tensors of the module's results, in order; the token taken off and kept for the rank.
std::vector<py::object> CallComputation(const Collective& collective, const Plan& plan,
                                        const std::vector<py::handle>& tensors, int64_t rank) {
  EnsureComputation(plan);
  const bool takes_token = plan.lowered.takes_token;
  const std::vector<size_t>& live = plan.lowered.live;
  py::list operands(live.size() + (takes_token ? 1 : 0));
  for (size_t i = 0; i < live.size(); ++i) {
    PyList_SET_ITEM(operands.ptr(), i, tensors[live[i]].inc_ref().ptr());
  }
  // What is lowered for another target has a token of its own: it never runs with the rank's.
  const bool elsewhere = ThreadTarget().has_value();
  std::optional<ChainTurn> turn;  // ranks on CPU threads have turns of their own
  if (takes_token && !elsewhere && !plan.target.RanksAreThreads()) turn.emplace();
  if (takes_token) {
    py::object token = elsewhere ? CallPython(Python().first_token, rank) : TokenOrFirst(rank);
    PyList_SET_ITEM(operands.ptr(), live.size(), token.release().ptr());
  }
  auto computation = py::reinterpret_borrow<py::object>(plan.computation);
  if (elsewhere) {
    const py::bytes module(plan.lowered.bytes);
    computation = CallPython(Python().stand_in, computation, module);
  }
  PyObject* args[] = {plan.op_name, operands.ptr(), computation.ptr()};
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
  if (takes_token && !elsewhere) SetToken(rank, py::object(list[live.size()]));
  if (NotedCalls::Get().Takes()) {
    std::vector<py::object> noted = results;
    if (takes_token) noted.push_back(list[live.size()]);
    std::vector<at::Tensor> given;
    for (const size_t i : live) given.push_back(THPVariable_Unpack(tensors[i].ptr()));
    NotedCalls::Get().Add(collective, plan.lowered.fingerprint, given, Unwrapped(noted));
  }
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

void SetIssueHook(IssueHook hook) { issue_hook = hook; }

AttachingFor::AttachingFor(uint64_t group) : before_(std::exchange(attaching_for, group)) {}
AttachingFor::~AttachingFor() { attaching_for = before_; }

std::vector<py::object> Attach(const Collective& collective,
                               const std::vector<py::handle>& tensors) {
  OpGate::Pass();
  if (!NotedAs::OfThisThread()) AnswerPeers();
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
  const bool threads = plan->target.RanksAreThreads() && !ThreadTarget();
  std::shared_ptr<void> turn;  // until the call is in the graph
  if (threads || Recording()) {
    const Site site = CurrentSite();
    if (threads) turn = issue_hook(rank, plan, site, attaching_for);
    Note({rank, plan, operands, site});
  }
  // Nothing to move. Of a send, whose recv does the work, the results are the operands.
  if (plan->lowered.unchanged) {
    std::vector<py::object> same;
    for (py::handle tensor : tensors) {
      same.push_back(std::holds_alternative<Send>(collective)
                         ? py::reinterpret_borrow<py::object>(tensor)
                         : py::cast(Copied(THPVariable_Unpack(tensor.ptr()))));
    }
    return same;
  }
  std::vector<py::object> live;
  if (!plan->lowered.live.empty()) live = CallComputation(collective, *plan, tensors, rank);
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

// In no dimension: one node of the graph for all types, which XLA makes a copy.
at::Tensor Copied(const at::Tensor& x) { return at::flip(x, {}); }

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
