// The ranks of a group of torch.distributed, and this rank's place among them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xla_cc {

// As the source of a receive.
constexpr int kAnySource = -1;
// Those above it are ours: of data that follows what a user's tag has announced.
constexpr int kLargestTag = (1 << 30) - 1;

struct RankGroup {
  std::string name;              // what torch.distributed calls it
  std::vector<int64_t> members;  // ranks of the world, by rank of the group
  std::vector<int64_t>
      devices;             // of these, as programs number them: ranks may be numbered otherwise
  int64_t world_size = 0;  // how many devices there are
  int rank = 0;            // of this process or thread, in the group

  int size() const { return static_cast<int>(members.size()); }
  int64_t own() const { return members[rank]; }  // in the world
  // Whether it is all devices, in their order.
  bool IsWorld() const {
    for (int64_t i = 0; i < size(); ++i) {
      if (devices[i] != i) return false;
    }
    return size() == world_size;
  }
};

// "rank 3": its number in the world.
inline std::string RankName(const RankGroup& group, int rank) {
  return "rank " + std::to_string(group.members[rank]);
}

}  // namespace xla_cc
