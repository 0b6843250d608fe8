#include "torch_xla_cc/ranks.h"

#include <algorithm>

#include "torch_xla_cc/arguments.h"

namespace xla_cc {
namespace {

Failure Stopped() { return {{{"the ranks were stopped", {}}}}; }

}  // namespace

std::string Failure::Text() const {
  std::string text;
  for (const Part& part : parts) {
    text += part.text;
    if (part.site.code != nullptr) text += ToString(Resolve(part.site));
  }
  return text;
}

void Failure::Throw() const {
  switch (kind) {
    case Kind::kMismatch:
      throw CollectiveMismatch(Text());
    case Kind::kTimeout:
      throw CollectiveTimeout(Text());
    default:
      throw RanksDisagree(Text());
  }
}

Ranks& Ranks::Get() {
  static auto* ranks = new Ranks;  // never destroyed: threads may outlive main
  return *ranks;
}

void Ranks::Start(int64_t world_size, std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ranks_.assign(world_size, Rank());
  timeout_ = timeout;
  known_.clear();
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
  if (!Runs(rank)) {
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
  return Runs(rank) && !ranks_[rank].pending.empty();
}

std::vector<Ranks::Issued> Ranks::Pending(int64_t rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Runs(rank) ? ranks_[rank].pending : std::vector<Issued>();
}

void Ranks::Drop(int64_t rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Runs(rank)) Lose(rank);
}

void Ranks::Lose(int64_t rank) {
  ranks_[rank].pending.clear();
  ++ranks_[rank].losses;
}

int64_t Ranks::Losses(int64_t rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Runs(rank) ? ranks_[rank].losses : 0;
}

bool Ranks::IsIdle(int64_t rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Runs(rank) && ranks_[rank].idle;
}

Failure Ranks::Meet(int64_t rank, Site site, const std::string& program_hash,
                    const HandOver& graph) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!Runs(rank)) return Stopped();
  Rank& self = ranks_[rank];
  const auto failed = [&] { return ranks_.empty() || (failure_ && (!self.told || final_)); };
  // Handing over a graph waits for the device, and the device for the collectives of the last one:
  // no peer of those may be left behind.
  changed_.wait(lock, [&] { return failed() || !self.batch || self.batch->to_hand_over == 0; });
  if (ranks_.empty()) return Stopped();
  if (Failure failure = TakeFailureLocked(rank)) return failure;
  std::shared_ptr<Batch> batch;
  if (!self.pending.empty()) {
    self.waiting = true;
    self.waits_at = site;
    self.program_hash = program_hash;
    self.graph = &graph;
    const uint64_t before = self.released;
    Evaluate(rank);
    const auto limit = std::min(timeout_, self.limit);
    const bool in_time =
        changed_.wait_for(lock, limit, [&] { return failed() || self.released != before; });
    if (ranks_.empty()) return Stopped();
    if (self.released == before) {
      if (!in_time) {
        failure_ = Missing(rank);
        for (Rank& r : ranks_) r.told = false;
        changed_.notify_all();
      }
      self.waiting = false;
      return TakeFailureLocked(rank);
    }
    // From here on it must go on, whatever fails elsewhere: its peers will be in their collectives.
    batch = self.batch;
  }
  lock.unlock();
  if (!batch) {
    HandOverAlone(rank, graph);
  } else if (batch->leaders.at(rank) == rank) {
    HandOverLed(rank, *batch);
  }
  lock.lock();
  if (batch && (batch->gated || batch->leaders.at(rank) != rank)) {
    changed_.wait(lock, [&] { return batch->to_hand_over == 0; });
  }
  if (ranks_.empty()) return Stopped();
  if (batch && batch->failed) return TakeFailureLocked(rank);
  if (graph.wait && !self.idle) {
    lock.unlock();
    graph.wait();
    lock.lock();
    if (!ranks_.empty()) ranks_[rank].idle = true;
  }
  return {};
}

void Ranks::SetLimit(int64_t rank, std::chrono::milliseconds limit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Runs(rank)) ranks_[rank].limit = limit;
}

void Ranks::Disagree(int64_t rank, const std::set<int64_t>& coming, Failure failure) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!Runs(rank) || final_) return;
  if (!failure_) {
    failure_ = std::move(failure);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].told = !ranks_[r].waiting && coming.count(static_cast<int64_t>(r)) == 0;
    }
    ranks_[rank].told = false;
  }
  TakeFailureLocked(rank);
  changed_.notify_all();
}

void Ranks::Finish(int64_t rank, Site site) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!Runs(rank)) return;
  ranks_[rank].finished = true;
  ranks_[rank].waits_at = site;
  Evaluate(rank);
}

void Ranks::Fail(int64_t rank, const std::string& message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!Runs(rank)) return;
  ranks_[rank].finished = true;
  Lose(rank);
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
  return Runs(rank) ? TakeFailureLocked(rank) : Failure();
}

Failure Ranks::TakeFailureLocked(int64_t rank) {
  if (!failure_ || (ranks_[rank].told && !final_)) return {};
  Failure failure = failure_;
  ranks_[rank].told = true;
  Lose(rank);
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

bool Ranks::Runs(int64_t rank) const {
  return rank >= 0 && rank < static_cast<int64_t>(ranks_.size());
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
  batch->gated = MayCompile(ranks);
  batch->to_compile = batch->to_hand_over = ranks.size();
  std::map<std::string, int64_t> leaders;  // by program
  // The caller need not be woken: it leads if it is one of them.
  if (std::find(ranks.begin(), ranks.end(), caller) != ranks.end()) {
    leaders[ranks_[caller].program_hash] = caller;
  }
  for (int64_t rank : ranks) {
    batch->leaders[rank] = leaders.emplace(ranks_[rank].program_hash, rank).first->second;
  }
  batch->programs = leaders.size();
  for (int64_t rank : ranks) {
    Rank& released = ranks_[rank];
    batch->graphs[rank] = released.graph;
    released.pending.clear();
    released.waiting = false;
    released.batch = batch;
    ++released.released;
  }
  if (leaders.size() > 1 || leaders.begin()->second != caller) changed_.notify_all();
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
  if (failure_) failure_.kind = Failure::Kind::kMismatch;
  if (failure_) {
    changed_.notify_all();
  } else {
    Release(ranks, caller);
  }
}

}  // namespace xla_cc
