#include "torch_xla_cc/graph/planning.h"

#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <utility>

#include "torch_xla_cc/call_site.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/graph/target.h"

namespace xla_cc {
namespace {

std::atomic<bool> debug{false};
thread_local std::string planning_in;

}  // namespace

void SetDebug(bool value) { debug = value; }
bool Debug() { return debug; }

PlanningIn::PlanningIn(std::string group) : before_(std::exchange(planning_in, std::move(group))) {}
PlanningIn::~PlanningIn() { planning_in = std::move(before_); }

PlanPtr PlanFor(const Collective& collective, const std::vector<hlo::Shape>& operands) {
  const Target target = CurrentTarget();
  CallSite site = Debug() ? Resolve(CurrentSite()) : CallSite();
  if (!planning_in.empty()) site = {"group " + planning_in, site.line};
  Key key;
  key.Add(target.name);
  key("world_size", target.world_size);
  // One target of a process may have its ranks on chips in another order: the running one.
  key("chips", int64_t{!target.topology.chips.empty()});
  key("op", static_cast<int64_t>(OpFor(collective)));
  Visit(collective, [&](const auto& node) { std::decay_t<decltype(node)>::Fields(node, key); });
  for (const hlo::Shape& operand : operands) key.Add(operand);
  const std::optional<Rule> forced = ForcedRule();
  if (forced) key("forced", static_cast<int64_t>(*forced) + 1);
  if (!site.file.empty()) {
    key.Add(site.file);
    key("line", static_cast<int64_t>(site.line));
  }
  if (PlanPtr plan = PlanCache::Get().Find(key)) return plan;

  const int64_t age = PlanCache::Get().age();
  const py::gil_scoped_release unlocked;
  Result<Lowered> lowered = Lower(collective, operands, target, site, forced);
  if (!lowered.ok()) throw BadValue(lowered.status().message());
  auto plan = std::make_shared<Plan>(std::move(lowered.value()), target, planning_in);
  return PlanCache::Get().Insert(std::move(key), std::move(plan), age);
}

}  // namespace xla_cc
