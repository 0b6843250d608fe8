// Who loses what by a failure, and who is told of it.
#include <algorithm>

#include "torch_xla_cc/threads/world.h"

namespace xla_cc {

void World::Disagree(int64_t rank, const Failure& failure, uint64_t group) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (!Runs(rank) || final_) return;
  if (IsOwnThread(rank)) {
    Break({rank}, {group}, failure, rank);
  } else {
    Break({}, {group}, failure);
  }
}

void World::Told(int64_t rank, const Failure& failure) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  // Of what its own thread loses that hears by itself.
  if (Runs(rank) && IsOwnThread(rank)) LoseBy(rank, failure);
}

void World::LoseBy(int64_t rank, const Failure& failure) { Break({rank}, {}, failure, rank); }

void World::Break(const std::set<int64_t>& whose, const std::set<uint64_t>& groups, Failure failure,
                  int64_t raises) {
  failure.GiveNumber();
  Loss loss = LossOf(States(), whose, groups);
  if (loss.of_launch && !final_) {
    // What is of no group all ranks are told of, so that all lose what they have: but those that
    // are in a later torch.distributed than these.
    int began = 0;
    for (int64_t rank : loss.ranks) {
      if (!ranks_[rank].finished) began = std::max(began, ranks_[rank].began);
    }
    std::set<int64_t> all = loss.ranks;
    bool any_untold = false;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      Rank& other = ranks_[rank];
      const bool untold = failure_ && !other.told;  // of what this one stands for as well
      any_untold = any_untold || untold;
      other.told = other.began > began && !untold;
      if (other.told) {
        CountAnew(static_cast<int64_t>(rank));  // as the others do, when they hear
      } else {
        all.insert(static_cast<int64_t>(rank));
      }
    }
    failure_ = failure;
    failure_began_ = any_untold ? std::max(failure_began_, began) : began;
    loss = LossOf(States(), all, loss.groups);
    for (int64_t rank : loss.ranks) {
      if (ranks_[rank].told) ForgetCounts(rank);  // it loses what it has as well
    }
  }
  for (int64_t rank : loss.ranks) {
    // What it has pending stays, or it would not come to hear of this.
    Rank& concerned = ranks_[rank];
    if (rank != raises && !concerned.to_tell) concerned.to_tell = failure;
    concerned.lost = true;
    concerned.waiting = false;
  }
  for (uint64_t group : loss.groups) broken_.emplace(group, failure);
  monitor_.changed.notify_all();
  if (raises < 0) return;
  Lose(raises);
  Hears(raises, failure);
}

void World::Hears(int64_t rank, const Failure& failure) {
  ranks_[rank].to_tell = {};  // it hears once of what it has lost
  // Also of what all are told: of that it may hear where a group has broken by it.
  if (failure_ && failure.number == failure_.number) Know(rank);
}

Failure World::WhyBroken(uint64_t group) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  return WhyBrokenLocked(group);
}

Failure World::WhyBrokenLocked(uint64_t group) const {
  const auto broken = broken_.find(group);
  return broken == broken_.end() ? Failure() : broken->second;
}

Failure World::TakeFailure(int64_t rank, uint64_t group) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (!Runs(rank)) return {};
  // Where the rank's own thread is another, that is the one to hear of what it loses.
  if (IsOwnThread(rank)) {
    if (Failure failure = TakeFailureLocked(rank)) return failure;
  }
  return WhyBrokenLocked(group);
}

bool World::MustHear(int64_t rank) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  return Runs(rank) && IsOwnThread(rank) && Owed(rank);
}

bool World::Owed(int64_t rank) const { return failure_ && (!ranks_[rank].told || final_); }

Failure World::TakeFailureLocked(int64_t rank) {
  const Failure failure = Owed(rank) ? failure_ : ranks_[rank].to_tell;
  if (!failure) return {};
  Lose(rank);
  Hears(rank, failure);
  return failure;
}

void World::Know(int64_t rank) {
  ranks_[rank].told = true;
  CountAnew(rank);
  GoOnIfAllKnow(rank);
}

// Once every running rank knows, they may try again, from a clean start.
void World::GoOnIfAllKnow(int64_t rank) {
  const bool all =
      std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.told || r.finished; });
  if (!all || final_) return;
  failure_ = {};
  for (Rank& r : ranks_) r.told = false;
  Evaluate(rank);  // ranks that knew earlier may be waiting again
}

uint64_t& World::CountOf(const IssuedCall& issued, int64_t rank) {
  auto& counts = ranks_[rank].counts;
  if (issued.group != 0) return counts[{issued.group, {}}];
  return counts[{0, RanksOf(issued, rank, ranks_.size())}];
}

void World::Skip(int64_t rank, uint64_t group) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (Runs(rank)) ++ranks_[rank].counts[{group, {}}];
}

void World::ForgetCounts(int64_t rank) {
  for (auto& [of, count] : ranks_[rank].counts) {
    if (of.first == 0) count = 0;
  }
}

void World::CountAnew(int64_t rank) {
  ForgetCounts(rank);
  for (IssuedCall& issued : ranks_[rank].pending) {
    if (issued.group == 0) issued.order = ++CountOf(issued, rank);
  }
}

}  // namespace xla_cc
