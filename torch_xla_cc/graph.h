// The life of a collective in torch_xla's graph: find or lower its plan, attach it, note it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>
#include <vector>

#include "torch_xla_cc/plans.h"
#include "torch_xla_cc/site.h"

namespace xla_cc {

// What the extension calls in Python.
struct PythonFunctions {
  py::object computation_from_module;  // of torch_xla._XLAC
  py::object user_computation;         // of torch_xla._XLAC
  py::object running_target;           // of torch_xla_cc._runtime.device
  py::object first_token;              // of torch_xla_cc._runtime.device
  py::object increment_counter;        // of torch_xla._XLAC
  py::object fallback_warning;         // torch_xla_cc.FallbackWarning
  py::object is_manual;                // of torch_xla_cc._ops.partitions
};
void SetPythonFunctions(PythonFunctions functions);

// The plan of a call, lowered if it is new. Takes and releases the interpreter lock itself: it is
// held on entry and on return, and not while lowering. Throws BadValue.
PlanPtr PlanFor(const Collective& collective, const std::vector<hlo::Shape>& operands);

// Puts the collective into the graph; one new result a tensor. Holds the interpreter lock.
// Throws BadValue, or py::error_already_set.
std::vector<py::object> Attach(const Collective& collective,
                               const std::vector<py::handle>& tensors);

// The same for tensors that no Python object is at hand for.
std::vector<at::Tensor> AttachTensors(const Collective& collective,
                                      const std::vector<at::Tensor>& tensors);

// The target of lowerings: a thread's own if it has set one (lowering_for), else the running
// device's, which Python tells on first use.
const Target& CurrentTarget();
void SetThreadTarget(std::optional<Target> target);
std::optional<Target> ThreadTarget();
void ForgetRunningTarget();

// The rule that lowerings on this thread take whatever the table says, for measuring.
void SetForcedRule(std::optional<Rule> rule);

// One more in torch_xla's report of metrics, as xla_cc.fallback.<op>.
void CountFallback(const std::string& op);
// A torch_xla_cc.FallbackWarning from that line. Throws if a filter makes it an error.
void Warn(const std::string& text, const std::string& file, int line);

// Modules carry the caller's file and line; one is made per call site then.
void SetDebug(bool debug);
bool Debug();

// Collectives that this thread's device issued while recording is on.
struct Record {
  int64_t rank;
  PlanPtr plan;
  std::vector<hlo::Shape> operands;
  Site site;
};
void SetRecording(bool recording);
// Keeps it if recording is on. Needs the interpreter lock.
void Note(Record record);
std::vector<Record> TakeRecords();

// Forgets the token of a rank (its graph was thrown away), or of all.
void ResetToken(int64_t rank);
void ResetTokens();
// The token that orders the rank's pending collectives; none before its first.
py::object Token(int64_t rank);

}  // namespace xla_cc
