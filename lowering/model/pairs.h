// Who sends to whom.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lowering/status.h"

namespace xla_cc {

using Pairs = std::vector<std::pair<int64_t, int64_t>>;  // (source, target)

// (P1) ids in range, no source and no target twice. Sorts the pairs: their order means nothing.
Status ResolvePairs(const std::string& op, int64_t world_size, Pairs* pairs);

}  // namespace xla_cc
