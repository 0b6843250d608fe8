#include "lowering/rules/trial.h"

#include <optional>

namespace xla_cc {

using hlo::Computation;
using hlo::Value;

namespace {

// An instruction costs time before it moves anything: about as much as moving so many bytes.
// Threads have to wake each other, and have a memory for a wire.
int64_t BytesOfLatency(const Target& target) {
  return target.RanksAreThreads() ? int64_t{2} << 20 : int64_t{256} << 10;
}

// None if the device cannot.
std::optional<int64_t> CostOf(const Trial& trial, const Emitter& e, const Value& x) {
  hlo::Module module;
  Computation entry = module.Begin("trial");
  const Value operand = entry.Parameter(x.shape);
  const Value token = entry.Parameter({hlo::ElementType::kS32, {1}});
  Emitter emitter = e.On(&module, &entry, token);
  trial(emitter, operand);
  if (!emitter.refusal().empty()) return std::nullopt;
  const Emitter::Cost& cost = emitter.cost();
  return cost.wire_bytes + cost.instructions * BytesOfLatency(e.target());
}

}  // namespace

size_t Cheapest(const Emitter& e, const Value& x, const std::vector<Trial>& trials) {
  if (trials.size() == 1) return 0;
  size_t best = 0;
  std::optional<int64_t> least;
  for (size_t i = 0; i < trials.size(); ++i) {
    const std::optional<int64_t> cost = CostOf(trials[i], e, x);
    if (!cost || (least && *cost >= *least)) continue;
    least = cost;
    best = i;
  }
  return best;
}

}  // namespace xla_cc
