#include "lowering/ops/collective_permute.h"

#include <algorithm>

#include "lowering/bits.h"
#include "lowering/lower.h"
#include "lowering/ops/all_gather.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

Status ResolvePairs(const std::string& op, int64_t world_size, Pairs* pairs) {
  std::vector<bool> sources(world_size, false);
  std::vector<bool> targets(world_size, false);
  for (const auto& [source, target] : *pairs) {
    const std::string pair = "(" + std::to_string(source) + ", " + std::to_string(target) + ")";
    for (int64_t rank : {source, target}) {
      if (rank < 0 || rank >= world_size) {
        return Refuse({"P1", op, "pairs", pair,
                       "a pair of ranks of the world, 0 to " + std::to_string(world_size - 1),
                       "Name ranks of this world of " + std::to_string(world_size)});
      }
    }
    if (sources[source] || targets[target]) {
      return Refuse(
          {"P1", op, "pairs", pair,
           std::string("the only pair with this ") + (sources[source] ? "source" : "target"),
           "Use collective_broadcast or all_gather where one rank has several partners"});
    }
    sources[source] = targets[target] = true;
  }
  std::sort(pairs->begin(), pairs->end());
  return Status::Ok();
}

Status CollectivePermute::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  return ResolvePairs(kName, call.world_size(), &pairs);
}

Values CollectivePermute::LowerNative(Emitter& e, const Values& xs) const {
  return {e.CollectivePermute(xs[0], pairs)};
}

// collective_permute = all_gather ; slice of the source's block, or zeros.
Values CollectivePermute::LowerFallback(Emitter& e, const Values& xs) const {
  Computation& c = e.c();
  const Shape& shape = xs[0].shape;
  std::vector<int64_t> sources(e.world_size(), 0);
  std::vector<int64_t> has_source(e.world_size(), 0);
  for (const auto& [source, target] : pairs) {
    sources[target] = source;
    has_source[target] = 1;
  }
  std::vector<int64_t> stacked = shape.dims;
  stacked.insert(stacked.begin(), 1);
  const Value gathered = Lower(AllGather{}, e, {c.Reshape(xs[0], stacked)})[0];
  Values starts(stacked.size(), c.Scalar(ElementType::kS32, 0));
  starts[0] = ByRank(c, sources);
  const Value received = c.Reshape(c.DynamicSlice(gathered, starts, stacked), shape.dims);
  if (static_cast<int64_t>(pairs.size()) == e.world_size()) return {received};
  // XLA:CPU selects between narrow floats as f32, and so quietens NaNs.
  return {MapBits(c, received, [&](const Value& bits) {
    const Value is_target = c.Convert(ByRank(c, has_source), ElementType::kPred);
    const Value mask = c.Broadcast(is_target, {ElementType::kPred, bits.shape.dims}, {});
    const Value zeros = c.Broadcast(c.Scalar(bits.shape.type, 0), bits.shape, {});
    return c.Select(mask, bits, zeros);
  })};
}

}  // namespace xla_cc
