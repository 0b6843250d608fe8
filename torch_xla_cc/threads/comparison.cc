#include "torch_xla_cc/threads/comparison.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>

namespace xla_cc {
namespace {

// What a rank has pending, by the group that it is in, in order.
using ByGroup = std::map<std::vector<int64_t>, std::vector<const IssuedCall*>>;
using Waiting = std::map<int64_t, ByGroup>;  // by rank

std::string RankName(int64_t rank) { return "rank " + std::to_string(rank); }

std::vector<int64_t> AllOf(const RankStates& ranks) {
  std::vector<int64_t> all(ranks.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// The usual step: nothing to look at one by one.
bool NothingDiffers(const RankStates& ranks) {
  const auto& first = ranks[0]->pending;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& own = ranks[rank]->pending;
    if (!ranks[rank]->waiting || own.size() != first.size()) return false;
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i].lowered != first[i].lowered) return false;
      if (own[i].group == first[i].group && own[i].order == first[i].order) continue;
      // Groups beside each other along an axis of a mesh are several.
      const auto group = RanksOf(own[i], static_cast<int64_t>(rank), ranks.size());
      if (group.empty()) return false;
      const auto& theirs = ranks[static_cast<size_t>(group.front())]->pending;
      if (theirs.size() <= i || own[i].group != theirs[i].group) return false;
      if (own[i].order != theirs[i].order) return false;
    }
  }
  return true;
}

Waiting WaitingByGroup(const RankStates& ranks) {
  Waiting waiting;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i]->waiting) continue;
    const auto rank = static_cast<int64_t>(i);
    for (const IssuedCall& issued : ranks[i]->pending) {
      waiting[rank][RanksOf(issued, rank, ranks.size())].push_back(&issued);
    }
  }
  return waiting;
}

// Takes away those that miss a peer, or as many calls of one, until nothing changes.
void KeepThoseWhosePeersCome(Waiting& ready) {
  const auto misses_one = [&](const ByGroup& groups) {
    for (const auto& [group, issued] : groups) {
      for (int64_t peer : group) {
        const auto found = ready.find(peer);
        if (found == ready.end()) return true;
        const auto theirs = found->second.find(group);
        if (theirs == found->second.end() || theirs->second.size() != issued.size()) return true;
      }
    }
    return false;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto at = ready.begin(); at != ready.end();) {
      const bool gone = misses_one(at->second);
      changed = changed || gone;
      at = gone ? ready.erase(at) : std::next(at);
    }
  }
}

Failure Compare(const RankStates& ranks, int64_t a, int64_t b, const std::vector<int64_t>& group,
                const ByGroup& of_a, const ByGroup& of_b) {
  static const std::vector<const IssuedCall*> kNone;
  const auto& list_a = of_a.at(group);
  const auto found = of_b.find(group);
  const auto& list_b = found == of_b.end() ? kNone : found->second;
  const std::string where = " in group [" + hlo::ToString(group) + "]";
  for (size_t i = 0; i < std::min(list_a.size(), list_b.size()); ++i) {
    if (list_a[i]->group != list_b[i]->group) {
      const auto said = [](int64_t rank, const IssuedCall& call) {
        return RankName(rank) + " " + call.lowered->identity +
               (call.group == 0 ? " of no group of torch.distributed" : "") + " at ";
      };
      return {{{"the ranks call" + where +
                    " in different groups of torch.distributed: " + said(a, *list_a[i]),
                list_a[i]->site},
               {", " + said(b, *list_b[i]), list_b[i]->site},
               {". Groups of the same ranks are not one, nor are a group and the one that is made "
                "after its end: every rank must call them in one order",
                {}}}};
    }
    const bool in_order = list_a[i]->order == list_b[i]->order;
    if (list_a[i]->lowered == list_b[i]->lowered && in_order) continue;
    const Lowered& call_a = *list_a[i]->lowered;
    const Lowered& call_b = *list_b[i]->lowered;
    const bool same = call_a.identity == call_b.identity;
    const auto becomes = [&](const Lowered& call, int64_t rank) {
      return ToString(call.encounters, rank, static_cast<int64_t>(ranks.size()));
    };
    const auto alike = [&](int64_t rank) { return becomes(call_a, rank) == becomes(call_b, rank); };
    if (same && alike(a) && alike(b)) {
      if (in_order) continue;
      const auto nth = [](int64_t rank, const IssuedCall& call) {
        return RankName(rank) + " " + call.lowered->name + ", its call " +
               std::to_string(call.order) + ", at ";
      };
      return {{{"the ranks are not at the same call" + where + ": " + nth(a, *list_a[i]),
                list_a[i]->site},
               {", " + nth(b, *list_b[i]), list_b[i]->site},
               {". One has lost some that were pending, to an error that it raised", {}}}};
    }
    const auto said = [&](const Lowered& call, int64_t rank) {
      return same ? call.name + ", which becomes " + becomes(call, rank) + "," : call.identity;
    };
    return {
        {{"the ranks call different collectives" + where + ": " + RankName(a) + " " +
              said(call_a, a) + " at ",
          list_a[i]->site},
         {", " + RankName(b) + " " + said(call_b, b) + " at ", list_b[i]->site},
         {std::string(". Every rank of a group must make the same calls in the same order, with ") +
              (same ? "the same groups" : "the same shapes"),
          {}}}};
  }
  // A rank that waits with fewer calls may yet make the others, if it can go on without the first.
  const bool b_needs_a = std::any_of(of_b.begin(), of_b.end(), [&](const auto& other) {
    return std::find(other.first.begin(), other.first.end(), a) != other.first.end();
  });
  if (list_a.size() <= list_b.size() || !b_needs_a) return {};
  const IssuedCall& extra = *list_a[list_b.size()];
  const IssuedCall& other = ranks[b]->pending.back();
  return {{{RankName(a) + " calls " + extra.lowered->name + where + " at ", extra.site},
           {", and " + RankName(b) + " runs its graph without it at ", ranks[b]->waits_at},
           {", after " + other.lowered->name + " at ", other.site},
           {". The ranks of a group must run their graphs (torch_xla.sync, .item(), .cpu(), print) "
            "after the same collectives",
            {}}}};
}

// What differs now between ranks that wait for each other, or for one that has ended, differs for
// good.
Verdict FindMismatch(const RankStates& ranks, const Waiting& waiting) {
  for (const auto& [rank, groups] : waiting) {
    for (const auto& [group, issued] : groups) {
      for (int64_t peer : group) {
        Failure failure;
        const auto found = waiting.find(peer);
        if (found != waiting.end()) {
          failure = Compare(ranks, rank, peer, group, groups, found->second);
        } else if (ranks[peer]->finished) {
          failure = {{{RankName(rank) + " waits with " + issued[0]->lowered->name + " at ",
                       issued[0]->site},
                      {", and " + RankName(peer) + " of its group [" + hlo::ToString(group) +
                           "] has ended without calling it",
                       {}}}};
        }
        if (failure) return {{}, failure, {rank, peer}};
      }
    }
  }
  return {};
}

// All ranks that still run wait, and none can go on.
Failure NobodyGoesOn(const RankStates& ranks) {
  Failure failure;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank]->finished) continue;
    if (!ranks[rank]->waiting) return {};
    const IssuedCall& first = ranks[rank]->pending[0];
    failure.phrases.push_back({(failure ? "; " : "every rank waits for another: ") +
                                   RankName(static_cast<int64_t>(rank)) + " with " +
                                   first.lowered->name + " at ",
                               first.site});
  }
  if (failure) {
    failure.phrases.push_back(
        {". Every rank of a group must make the same calls before it runs its graph", {}});
  }
  return failure;
}

// Whether a rank has something pending that the other has a part in.
bool IsPeer(const RankStates& ranks, int64_t rank, int64_t other) {
  const auto& pending = ranks[rank]->pending;
  return std::any_of(pending.begin(), pending.end(), [&](const IssuedCall& issued) {
    const auto group = RanksOf(issued, rank, ranks.size());
    return std::find(group.begin(), group.end(), other) != group.end();
  });
}

// Calls that agree within each group can still wait for each other in a circle across groups. Plays
// the step through: a collective happens when it is the next of every rank of its group.
Verdict Deadlock(const RankStates& ranks, const Waiting& ready) {
  struct Next {
    const IssuedCall* issued;
    std::vector<int64_t> group;
  };
  std::map<int64_t, std::vector<Next>> left;  // the next one last
  for (const auto& [rank, groups] : ready) {
    for (const IssuedCall& issued : ranks[rank]->pending) {
      left[rank].push_back({&issued, RanksOf(issued, rank, ranks.size())});
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
  Verdict verdict;
  Failure& failure = verdict.failure;
  for (const auto& [rank, calls] : left) {
    if (calls.empty()) continue;
    verdict.whose.push_back(rank);
    failure.phrases.push_back(
        {(failure ? "; " : "the ranks would wait for each other in a circle: ") + RankName(rank) +
             " for group [" + hlo::ToString(calls.back().group) + "] in " +
             calls.back().issued->lowered->name + " at ",
         calls.back().issued->site});
  }
  if (failure) {
    failure.phrases.push_back(
        {". Call the collectives of overlapping groups in one order on all ranks", {}});
  }
  return verdict;
}

}  // namespace

std::vector<int64_t> RanksOf(const IssuedCall& issued, int64_t rank, size_t world_size) {
  return GroupsOf(issued.lowered->collective).Of(rank, static_cast<int64_t>(world_size));
}

Loss LossOf(const RankStates& ranks, std::set<int64_t> whose, std::set<uint64_t> groups) {
  Loss loss{false, std::move(whose), std::move(groups)};
  std::set<std::vector<int64_t>> of_launch;
  const auto note = [&](int64_t rank) {
    if (ranks[rank]->lost) return;  // with all that is lost with it
    for (const IssuedCall& issued : ranks[rank]->pending) {
      if (issued.group != 0) {
        loss.groups.insert(issued.group);
      } else {
        of_launch.insert(RanksOf(issued, rank, ranks.size()));
      }
    }
  };
  for (int64_t rank : loss.ranks) note(rank);
  const auto has_part = [&](int64_t rank) {
    const auto& pending = ranks[rank]->pending;
    if (ranks[rank]->lost) return false;
    return std::any_of(pending.begin(), pending.end(), [&](const IssuedCall& issued) {
      return issued.group != 0 ? loss.groups.count(issued.group) > 0
                               : of_launch.count(RanksOf(issued, rank, ranks.size())) > 0;
    });
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (int64_t rank : AllOf(ranks)) {
      if (loss.ranks.count(rank) > 0 || !has_part(rank)) continue;
      loss.ranks.insert(rank);
      note(rank);
      changed = true;
    }
  }
  loss.of_launch = !of_launch.empty();
  return loss;
}

Verdict Judge(const RankStates& ranks) {
  if (NothingDiffers(ranks)) return {AllOf(ranks), {}, {}};
  Waiting ready = WaitingByGroup(ranks);
  Verdict verdict = FindMismatch(ranks, ready);
  if (!verdict.failure) {
    KeepThoseWhosePeersCome(ready);
    if (ready.empty()) {
      verdict = {{}, NobodyGoesOn(ranks), AllOf(ranks)};
    } else {
      verdict = Deadlock(ranks, ready);
    }
  }
  if (verdict.failure) {
    verdict.failure.kind = Failure::Kind::kMismatch;
    return verdict;
  }
  for (const auto& [rank, groups] : ready) verdict.ranks.push_back(rank);
  return verdict;
}

Failure Missing(const RankStates& ranks, int64_t rank, std::chrono::milliseconds limit,
                bool of_launch) {
  Failure failure{
      {{RankName(rank) + " waited " + std::to_string(limit.count()) + " ms, the time limit of " +
            (of_launch ? "launch" : "its group") + ", to run its graph at ",
        ranks[rank]->waits_at}},
      Failure::Kind::kTimeout};
  for (size_t peer = 0; peer < ranks.size(); ++peer) {
    const auto other = static_cast<int64_t>(peer);
    if (other == rank || ranks[peer]->finished || !IsPeer(ranks, rank, other)) continue;
    const IssuedCall& last = ranks[peer]->last;
    const char* does = ranks[peer]->waiting ? " waits for others" : " has not come";
    failure.phrases.push_back({"; " + RankName(other) + does + ", its last collective was " +
                                   (last.lowered ? last.lowered->name + " at " : "none"),
                               last.site});
  }
  return failure;
}

}  // namespace xla_cc
