// What is wrong between ranks that wait for each other, in words.
#include <algorithm>

#include "torch_xla_cc/ranks.h"

namespace xla_cc {
namespace {

std::string RankName(int64_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

// What differs now between ranks that wait for each other, or for one that has ended, differs for
// good.
Failure Ranks::FindMismatch(const std::map<int64_t, ByGroup>& waiting) const {
  for (const auto& [rank, groups] : waiting) {
    for (const auto& [group, issued] : groups) {
      for (int64_t peer : group) {
        Failure failure;
        const auto found = waiting.find(peer);
        if (found != waiting.end()) {
          failure = Compare(rank, peer, group, groups, found->second);
        } else if (ranks_[peer].finished) {
          failure = {{{RankName(rank) + " waits with " + issued[0]->plan->lowered.name + " at ",
                       issued[0]->site},
                      {", and " + RankName(peer) + " of its group [" + hlo::ToString(group) +
                           "] has ended without calling it",
                       {}}}};
        }
        if (failure) return failure;
      }
    }
  }
  return {};
}

// All ranks that still run wait, and none can go on.
Failure Ranks::NobodyGoesOn() const {
  Failure failure;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].finished) continue;
    if (!ranks_[rank].waiting) return {};
    const Issued& first = ranks_[rank].pending[0];
    failure.parts.push_back({(failure ? "; " : "every rank waits for another: ") +
                                 RankName(static_cast<int64_t>(rank)) + " with " +
                                 first.plan->lowered.name + " at ",
                             first.site});
  }
  if (failure) {
    failure.parts.push_back(
        {". Every rank of a group must make the same calls before it runs its graph", {}});
  }
  return failure;
}

// Calls that agree within each group can still wait for each other in a circle across groups. Plays
// the step through: a collective happens when it is the next of every rank of its group.
Failure Ranks::Deadlock(const std::vector<int64_t>& ranks) const {
  struct Next {
    const Issued* issued;
    std::vector<int64_t> group;
  };
  std::map<int64_t, std::vector<Next>> left;  // the next one last
  for (int64_t rank : ranks) {
    for (const Issued& issued : ranks_[rank].pending) {
      const Groups groups = GroupsOf(issued.plan->lowered.collective);
      left[rank].push_back({&issued, groups.Of(rank, static_cast<int64_t>(ranks_.size()))});
    }
    std::reverse(left[rank].begin(), left[rank].end());
  }
  for (bool progress = true; progress;) {
    progress = false;
    for (auto& [rank, calls] : left) {
      if (calls.empty()) continue;
      const std::vector<int64_t> group = calls.back().group;
      const bool happens = std::all_of(group.begin(), group.end(), [&](int64_t peer) {
        return !left[peer].empty() && left[peer].back().group == group;
      });
      if (!happens) continue;
      for (int64_t peer : group) left[peer].pop_back();
      progress = true;
    }
  }
  Failure failure;
  for (const auto& [rank, calls] : left) {
    if (calls.empty()) continue;
    failure.parts.push_back(
        {(failure ? "; " : "the ranks would wait for each other in a circle: ") + RankName(rank) +
             " for group [" + hlo::ToString(calls.back().group) + "] in " +
             calls.back().issued->plan->lowered.name + " at ",
         calls.back().issued->site});
  }
  if (failure) {
    failure.parts.push_back(
        {". Call the collectives of overlapping groups in one order on all ranks", {}});
  }
  return failure;
}

Failure Ranks::Compare(int64_t a, int64_t b, const std::vector<int64_t>& group, const ByGroup& of_a,
                       const ByGroup& of_b) const {
  static const std::vector<const Issued*> kNone;
  const auto& list_a = of_a.at(group);
  const auto found = of_b.find(group);
  const auto& list_b = found == of_b.end() ? kNone : found->second;
  const std::string where = " in group [" + hlo::ToString(group) + "]";
  for (size_t i = 0; i < std::min(list_a.size(), list_b.size()); ++i) {
    if (list_a[i]->plan == list_b[i]->plan) continue;
    const Lowered& call_a = list_a[i]->plan->lowered;
    const Lowered& call_b = list_b[i]->plan->lowered;
    if (call_a.identity == call_b.identity) continue;
    return {{{"the ranks call different collectives" + where + ": " + RankName(a) + " " +
                  call_a.identity + " at ",
              list_a[i]->site},
             {", " + RankName(b) + " " + call_b.identity + " at ", list_b[i]->site},
             {". Every rank of a group must make the same calls in the same order, with the same "
              "shapes",
              {}}}};
  }
  // A rank that waits with fewer calls may yet make the others, if it can go on without the first.
  const bool b_needs_a = std::any_of(of_b.begin(), of_b.end(), [&](const auto& other) {
    return std::find(other.first.begin(), other.first.end(), a) != other.first.end();
  });
  if (list_a.size() <= list_b.size() || !b_needs_a) return {};
  const Issued& extra = *list_a[list_b.size()];
  const Issued& other = ranks_[b].pending.back();
  return {{{RankName(a) + " calls " + extra.plan->lowered.name + where + " at ", extra.site},
           {", and " + RankName(b) + " runs its graph without it at ", ranks_[b].waits_at},
           {", after " + other.plan->lowered.name + " at ", other.site},
           {". The ranks of a group must run their graphs (torch_xla.sync, .item(), .cpu(), print) "
            "after the same collectives",
            {}}}};
}

Failure Ranks::Missing(int64_t rank) const {
  const bool of_launch = timeout_ <= ranks_[rank].limit;
  const auto limit = std::min(timeout_, ranks_[rank].limit);
  Failure failure{
      {{RankName(rank) + " waited " + std::to_string(limit.count()) + " ms, the time limit of " +
            (of_launch ? "launch" : "its group") + ", to run its graph at ",
        ranks_[rank].waits_at}},
      Failure::Kind::kTimeout};
  for (size_t peer = 0; peer < ranks_.size(); ++peer) {
    if (ranks_[peer].waiting || ranks_[peer].finished) continue;
    const Issued& last = ranks_[peer].last;
    failure.parts.push_back({"; " + RankName(peer) + " has not come, its last collective was " +
                                 (last.plan ? last.plan->lowered.name + " at " : "none"),
                             last.site});
  }
  return failure;
}

}  // namespace xla_cc
