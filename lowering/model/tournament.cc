#include "lowering/model/tournament.h"

#include <algorithm>

namespace xla_cc {

std::vector<PairingRound> PairingRounds(const Groups& groups, int64_t world_size) {
  const int64_t longest = groups.Size(world_size);
  // Everybody meets the others on a circle while the last one stays; odd groups have a ghost.
  std::vector<PairingRound> rounds(longest % 2 == 0 ? longest - 1 : longest);
  for (size_t number = 0; number < rounds.size(); ++number) {
    PairingRound& round = rounds[number];
    round.partners = groups.Positions(world_size);
    for (const auto& group : groups.Expanded(world_size)) {
      const int64_t size = static_cast<int64_t>(group.size());
      const int64_t circle = size % 2 == 0 ? size - 1 : size;
      if (static_cast<int64_t>(number) >= circle || size == 1) continue;
      for (int64_t i = 0; i < size; ++i) {
        // On the circle, positions whose sum is the number of the round meet.
        const int64_t facing = (static_cast<int64_t>(number) - i % circle + circle) % circle;
        int64_t partner = facing;
        if (size % 2 == 0 && i == circle) {
          // The one that stays meets who would meet itself: 2 p = number on the odd circle.
          partner = static_cast<int64_t>(number) * ((circle + 1) / 2) % circle;
        } else if (facing == i) {
          if (size % 2 != 0) continue;  // meets the ghost
          partner = circle;
        }
        round.partners[group[i]] = partner;
        round.pairs.push_back({group[i], group[partner]});
      }
    }
    std::sort(round.pairs.begin(), round.pairs.end());
  }
  return rounds;
}

}  // namespace xla_cc
