// Who meets whom when every member of a group exchanges something with every other.
#pragma once

#include <vector>

#include "lowering/model/groups.h"
#include "lowering/model/pairs.h"

namespace xla_cc {

// Exchanges between pairs of group members, round by round, so that every member meets every other
// once (a round-robin tournament). Idle members have no pair.
struct PairingRound {
  Pairs pairs;                    // both directions
  std::vector<int64_t> partners;  // by rank: the partner's position, the own one if idle
};
std::vector<PairingRound> PairingRounds(const Groups& groups, int64_t world_size);

}  // namespace xla_cc
