#include "torch_xla_cc/graph/fallback_policy.h"

#include <atomic>
#include <set>
#include <tuple>

#include "torch_xla_cc/call_site.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/python_side.h"

namespace xla_cc {
namespace {

std::atomic<Policy> process_policy{Policy::kWarn};

thread_local std::optional<Policy> thread_policy;

// One more in torch_xla's report of metrics.
void Count(const std::string& op) {
  CallPython(Python().increment_counter, "xla_cc.fallback." + op, 1);
}

std::string Bytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes);
  int unit = 0;
  for (; size >= 1024 && unit < 4; ++unit) size /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", size, units[unit]);
  return text;
}

std::string Describe(const Plan& plan, const std::vector<hlo::Shape>& operands) {
  const Lowered& lowered = plan.lowered;
  std::string shapes;
  for (const hlo::Shape& shape : operands) {
    shapes += (shapes.empty() ? "" : ", ") + shape.ToString();
  }
  std::string costs;
  const auto add = [&costs](int64_t bytes, int64_t native, const char* what) {
    if (bytes <= native) return;
    costs += (costs.empty() ? "" : " and ") + Bytes(bytes) + " instead of " + Bytes(native) + what;
  };
  add(lowered.cost.wire_bytes, lowered.native_cost.wire_bytes, " on the wire");
  add(lowered.cost.memory_bytes, lowered.native_cost.memory_bytes, " of results");
  return lowered.name + " of " + shapes + " on " + plan.target.name +
         (lowered.rule == Rule::kHost ? " goes through the host: "
                                      : " is lowered by its fallback: ") +
         lowered.why + ". It costs each rank " + costs;
}

using Reason = std::tuple<std::string, std::string, std::string>;  // op, device, why

// What the policy has for a call that costs more than it should.
template <class Describe>
void ApplyPolicy(const Reason& reason, const Describe& describe, const Site& site) {
  const Policy policy = GetPolicy();
  if (policy == Policy::kAllow) return;
  if (policy == Policy::kError) {
    throw FallbackForbidden(describe() +
                            ". The fallback policy is 'error'. Use another form of the call, or "
                            "allow this one: fallback='allow'");
  }
  // Guarded by the interpreter lock.
  static auto* warned = new std::set<Reason>;
  if (!warned->insert(reason).second) return;
  const CallSite at = Resolve(site);
  const std::string text =
      describe() +
      ". You are told once for each op, device and reason; TORCH_XLA_CC_FALLBACK=allow or "
      "torch_xla_cc.fallback('allow') silences this, and 'error' forbids it";
  const std::string file = at.file.empty() ? "<unknown>" : at.file;
  if (PyErr_WarnExplicit(Python().fallback_warning.ptr(), text.c_str(), file.c_str(), at.line,
                         nullptr, nullptr) != 0) {
    throw py::error_already_set();  // a filter makes it an error
  }
}

}  // namespace

std::optional<Policy> PolicyFromName(const std::string& name) {
  if (name == "allow") return Policy::kAllow;
  if (name == "warn") return Policy::kWarn;
  if (name == "error") return Policy::kError;
  return std::nullopt;
}

std::string Name(Policy policy) {
  switch (policy) {
    case Policy::kAllow:
      return "allow";
    case Policy::kWarn:
      return "warn";
    case Policy::kError:
      return "error";
  }
  return "invalid";
}

void SetPolicy(Policy policy) { process_policy = policy; }
Policy GetPolicy() { return thread_policy.value_or(process_policy); }
void SetThreadPolicy(std::optional<Policy> policy) { thread_policy = policy; }
std::optional<Policy> ThreadPolicy() { return thread_policy; }

void OnFallback(const Plan& plan, const std::vector<hlo::Shape>& operands, const Site& site) {
  const Lowered& lowered = plan.lowered;
  const std::string op = Name(OpFor(lowered.collective));
  const bool costs_more = lowered.cost.wire_bytes > lowered.native_cost.wire_bytes ||
                          lowered.cost.memory_bytes > lowered.native_cost.memory_bytes;
  if (costs_more) {
    ApplyPolicy(
        {op, plan.target.device, lowered.why}, [&] { return Describe(plan, operands); }, site);
  }
  Count(op);
}

void OnHost(const std::string& call, const std::string& why, const Site& site) {
  const std::string op = call.substr(0, call.find('('));
  const auto describe = [&] { return call + " goes through the memory of the host: " + why; };
  ApplyPolicy({op, "", why}, describe, site);  // a process has one kind of devices
  Count(op);
}

}  // namespace xla_cc
