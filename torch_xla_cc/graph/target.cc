#include "torch_xla_cc/graph/target.h"

#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/python_side.h"

namespace xla_cc {
namespace {

struct OfThread {
  std::optional<Target> target;
  std::optional<Rule> forced;
};
thread_local OfThread of_thread;

// Of the process, one for each mode. Written under the interpreter lock.
std::optional<Target> running_targets[2];

// torch_xla's SPMD mode, which a program enters when it has begun: by xr.use_spmd().
bool IsSpmd() {
  const char* value = std::getenv("XLA_USE_SPMD");
  return value != nullptr && *value != '\0';
}

}  // namespace

const Target& CurrentTarget() {
  if (of_thread.target) return *of_thread.target;
  std::optional<Target>& running = running_targets[IsSpmd() ? 1 : 0];
  if (!running) {
    const auto [name, world_size, chips] =
        CallPython(Python().running_target)
            .cast<std::tuple<std::string, int64_t, std::vector<int64_t>>>();
    Result<Target> target = ParseTarget(name, world_size);
    if (!target.ok()) throw BadValue(target.status().message());
    running = target.value();
    if (running->topology.known()) running->topology.chips = chips;
  }
  return *running;
}

void SetThreadTarget(std::optional<Target> target) { of_thread.target = std::move(target); }
const std::optional<Target>& ThreadTarget() { return of_thread.target; }
void ForgetRunningTarget() {
  for (std::optional<Target>& target : running_targets) target.reset();
}

void SetForcedRule(std::optional<Rule> rule) { of_thread.forced = rule; }
std::optional<Rule> ForcedRule() { return of_thread.forced; }

}  // namespace xla_cc
