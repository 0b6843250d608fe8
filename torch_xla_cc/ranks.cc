#include "torch_xla_cc/ranks.h"

#include <algorithm>

namespace xla_cc {
namespace {

Failure Stopped() { return {{{"the ranks were stopped", {}}}}; }

std::string RankName(int64_t rank) { return "rank " + std::to_string(rank); }

}  // namespace

std::string Failure::Text() const {
  std::string text;
  for (const Part& part : parts) {
    text += part.text;
    if (part.site.code != nullptr) text += ToString(Resolve(part.site));
  }
  return text;
}

Ranks& Ranks::Get() {
  static auto* ranks = new Ranks;  // never destroyed: threads may outlive main
  return *ranks;
}

void Ranks::Start(int64_t world_size, std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ranks_.assign(world_size, Rank());
  timeout_ = timeout;
  failure_ = {};
  final_ = false;
}

void Ranks::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ranks_.clear();
  failure_ = {};
  final_ = false;
  changed_.notify_all();
}

Failure Ranks::Issue(int64_t rank, PlanPtr plan, Site site) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (rank < 0 || rank >= static_cast<int64_t>(ranks_.size())) {
    return {
        {{"a collective between CPU devices was called outside of torch_xla_cc.launch. There the "
          "ranks are threads that have to meet before they run: start them with "
          "torch_xla_cc.launch(fn, args, nprocs)",
          {}}}};
  }
  if (Failure failure = TakeFailureLocked(rank)) return failure;
  ranks_[rank].last = {plan, site};
  ranks_[rank].pending.push_back({std::move(plan), site});
  return {};
}

bool Ranks::HasPending(int64_t rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return rank >= 0 && rank < static_cast<int64_t>(ranks_.size()) && !ranks_[rank].pending.empty();
}

Failure Ranks::Meet(int64_t rank, Site site, const std::string& program_hash) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (rank < 0 || rank >= static_cast<int64_t>(ranks_.size())) return {};
  Rank& self = ranks_[rank];
  const auto failed = [&] { return ranks_.empty() || (failure_ && (!self.told || final_)); };
  // Handing over a graph waits for the device, and the device for the collectives of the last one:
  // no peer of those may be left behind.
  changed_.wait(lock, [&] { return failed() || !self.batch || self.batch->to_dispatch == 0; });
  if (ranks_.empty()) return Stopped();
  if (Failure failure = TakeFailureLocked(rank)) return failure;
  if (self.pending.empty()) return {};
  self.waiting = true;
  self.waits_at = site;
  self.program_hash = program_hash;
  const uint64_t before = self.released;
  Evaluate(rank);
  const bool in_time =
      changed_.wait_for(lock, timeout_, [&] { return failed() || self.released != before; });
  if (ranks_.empty()) return Stopped();
  if (self.released != before) {
    // From here on it must go on, whatever fails elsewhere: its peers are in their collectives.
    const std::shared_ptr<Batch> batch = self.batch;
    changed_.wait(lock, [&] {
      return ranks_.empty() || batch->leader < 0 || batch->leader == rank ||
             batch->leader_dispatched || batch->leader_failed;
    });
    if (ranks_.empty()) return Stopped();
    return batch->leader_failed ? TakeFailureLocked(rank) : Failure();
  }
  if (!in_time) {
    failure_ = Missing(rank);
    for (Rank& r : ranks_) r.told = false;
    changed_.notify_all();
  }
  self.waiting = false;
  return TakeFailureLocked(rank);
}

void Ranks::Dispatched(int64_t rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ranks_.empty() || !ranks_[rank].batch) return;
  Batch& batch = *ranks_[rank].batch;
  if (batch.to_dispatch > 0) --batch.to_dispatch;
  if (batch.leader == rank) batch.leader_dispatched = true;
  if (batch.leader == rank || batch.to_dispatch == 0) changed_.notify_all();
}

void Ranks::Finish(int64_t rank, Site site) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ranks_.empty()) return;
  ranks_[rank].finished = true;
  ranks_[rank].waits_at = site;
  Evaluate(rank);
}

void Ranks::Fail(int64_t rank, const std::string& message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ranks_.empty()) return;
  ranks_[rank].finished = true;
  ranks_[rank].pending.clear();
  if (ranks_[rank].batch && ranks_[rank].batch->leader == rank) {
    ranks_[rank].batch->leader_failed = !ranks_[rank].batch->leader_dispatched;
  }
  final_ = true;
  // The first failure is the cause; what follows from it is not reported over it.
  if (!failure_) failure_ = {{{message, {}}}};
  changed_.notify_all();
}

void Ranks::Abort(const std::string& message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failure_) failure_ = {{{message, {}}}};
  final_ = true;
  changed_.notify_all();
}

Failure Ranks::TakeFailure(int64_t rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ranks_.empty() ? Failure() : TakeFailureLocked(rank);
}

Failure Ranks::TakeFailureLocked(int64_t rank) {
  if (!failure_ || (ranks_[rank].told && !final_)) return {};
  Failure failure = failure_;
  ranks_[rank].told = true;
  ranks_[rank].pending.clear();
  // Once every running rank knows, they may try again, from a clean start.
  const bool all =
      std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.told || r.finished; });
  if (all && !final_) {
    failure_ = {};
    for (Rank& r : ranks_) r.told = false;
    Evaluate(rank);  // ranks that knew earlier may be waiting again
  }
  return failure;
}

bool Ranks::AllAlike() const {
  const auto same = [](const Issued& a, const Issued& b) { return a.plan == b.plan; };
  for (const Rank& rank : ranks_) {
    const auto& first = ranks_[0].pending;
    if (!rank.waiting ||
        !std::equal(rank.pending.begin(), rank.pending.end(), first.begin(), first.end(), same)) {
      return false;
    }
  }
  return true;
}

void Ranks::Release(const std::vector<int64_t>& ranks, int64_t caller) {
  if (ranks.empty()) return;
  const auto batch = std::make_shared<Batch>();
  batch->to_dispatch = ranks.size();
  const bool same_program = std::all_of(ranks.begin(), ranks.end(), [&](int64_t rank) {
    return ranks_[rank].program_hash == ranks_[ranks[0]].program_hash;
  });
  if (same_program) {
    // The caller need not be woken: it leads if it is one of them.
    const bool leads = std::find(ranks.begin(), ranks.end(), caller) != ranks.end();
    batch->leader = leads ? caller : ranks[0];
  }
  for (int64_t rank : ranks) {
    ranks_[rank].pending.clear();
    ranks_[rank].waiting = false;
    ranks_[rank].batch = batch;
    ++ranks_[rank].released;
  }
  if (batch->leader != caller) changed_.notify_all();
}

Ranks::ByGroup Ranks::PendingByGroup(int64_t rank) const {
  ByGroup by_group;
  for (const Issued& issued : ranks_[rank].pending) {
    const Groups groups = GroupsOf(issued.plan->lowered.collective);
    by_group[groups.Of(rank, static_cast<int64_t>(ranks_.size()))].push_back(&issued);
  }
  return by_group;
}

void Ranks::Evaluate(int64_t caller) {
  if (failure_) return;
  if (AllAlike()) {  // the usual step: nothing to look at one by one
    std::vector<int64_t> all(ranks_.size());
    for (size_t rank = 0; rank < all.size(); ++rank) all[rank] = static_cast<int64_t>(rank);
    Release(all, caller);
    return;
  }
  std::map<int64_t, ByGroup> ready;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].waiting) ready[rank] = PendingByGroup(rank);
  }
  failure_ = FindMismatch(ready);
  // A rank goes on if all its peers do, with as many calls: take away those that miss one until
  // nothing changes.
  const auto misses_one = [&](const auto& rank_and_groups) {
    for (const auto& [group, issued] : rank_and_groups.second) {
      for (int64_t peer : group) {
        const auto found = ready.find(peer);
        if (found == ready.end()) return true;
        const auto theirs = found->second.find(group);
        if (theirs == found->second.end() || theirs->second.size() != issued.size()) return true;
      }
    }
    return false;
  };
  for (bool changed = !failure_; changed;) {
    changed = false;
    for (auto at = ready.begin(); at != ready.end();) {
      const bool gone = misses_one(*at);
      changed = changed || gone;
      at = gone ? ready.erase(at) : std::next(at);
    }
  }
  std::vector<int64_t> ranks;
  for (const auto& [rank, groups] : ready) ranks.push_back(rank);
  if (!failure_) failure_ = ranks.empty() ? NobodyGoesOn() : Deadlock(ranks);
  if (failure_) {
    changed_.notify_all();
  } else {
    Release(ranks, caller);
  }
}

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
  Failure failure{{{RankName(rank) + " waited " + std::to_string(timeout_.count()) +
                        " ms, the time limit of launch, to run its graph at ",
                    ranks_[rank].waits_at}}};
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
