#include "lowering/model/pairs.h"

#include <algorithm>

#include "lowering/errors.h"

namespace xla_cc {

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

}  // namespace xla_cc
