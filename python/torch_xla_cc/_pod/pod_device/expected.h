// The groups that XLA is about to ask for.
//
// XLA splits the world where it wants a group: it says its first device and the place of this rank,
// and only the members come. So whoever runs a program says before which groups it has.
#pragma once

#include <algorithm>
#include <mutex>
#include <set>
#include <vector>

namespace pod {

using Ranks = std::vector<int>;

class Expected {
 public:
  // Those of a program that is about to run, in the order in which it meets in them: all their
  // ranks, and of each its size, and what XLA calls its first device.
  void Set(const int* ranks, const int* sizes, const int* colors, int count) {
    const std::lock_guard<std::mutex> lock(lock_);
    groups_.clear();
    for (int i = 0; i < count; ++i) {
      groups_.push_back({colors[i], Ranks(ranks, ranks + sizes[i])});
      ranks += sizes[i];
    }
  }

  // The group that is wanted: the first that is expected whose first device is `color`, in which
  // `rank` is at `key`, and which it has not made yet. Empty if there is none.
  Ranks Wanted(int color, int key, int rank) {
    const std::lock_guard<std::mutex> lock(lock_);
    for (const Group& group : groups_) {
      const Ranks& ranks = group.ranks;
      const bool here = key < static_cast<int>(ranks.size()) && ranks[key] == rank;
      if (here && group.color == color && made_.insert(ranks).second) return ranks;
    }
    return {};
  }

 private:
  struct Group {
    int color;
    Ranks ranks;
  };

  std::mutex lock_;
  std::vector<Group> groups_;
  std::set<Ranks> made_;
};

}  // namespace pod
