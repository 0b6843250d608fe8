// What the meetings of a world's groups ask of it.
#include <algorithm>

#include "torch_xla_cc/threads/meeting.h"
#include "torch_xla_cc/threads/world.h"

namespace xla_cc {

// Each of them for itself: one that has been told may be in its next world, and find the next
// failure there, before another has woken.
void World::Disagree(int64_t rank, const std::set<int64_t>& coming, const Failure& failure,
                     uint64_t where) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (!Runs(rank) || final_) return;
  Tell(rank, coming, failure, where);
  Lose(rank);
  ForgetWhatIsLost(rank);
}

void World::Tell(int64_t rank, const std::set<int64_t>& coming, const Failure& failure,
                 uint64_t where) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const auto other = static_cast<int64_t>(r);
    if (other == rank) continue;
    const bool in_vain = ranks_[r].waiting && HaveOneInCommon(States(), rank, other);
    if (!in_vain && coming.count(other) == 0) continue;
    TellOne(other, failure, where);
  }
  monitor_.changed.notify_all();
}

void World::TellOne(int64_t rank, const Failure& failure, uint64_t where) {
  // What it has pending stays, or it would not come to hear of this.
  ranks_[rank].to_tell.push_back({where, failure, {}});
  ranks_[rank].waiting = false;
}

void World::TellConcerned(const Concern& concern, const Failure& failure, int began) {
  for (int64_t rank : concern.now) {
    if (ranks_[rank].began <= began) TellOne(rank, failure, 0);
  }
  for (const auto& [rank, lost] : concern.later) {
    if (ranks_[rank].began <= began) ranks_[rank].to_tell.push_back({0, failure, lost});
  }
  monitor_.changed.notify_all();
}

bool World::HasToHear(int64_t rank) const {
  const auto& to_tell = ranks_[rank].to_tell;
  return std::any_of(to_tell.begin(), to_tell.end(),
                     [](const ToTell& one) { return one.of.empty(); });
}

// With what it has lost a rank has heard of all that this was lost by.
void World::ForgetWhatIsLost(int64_t rank) {
  auto& to_tell = ranks_[rank].to_tell;
  to_tell.erase(std::remove_if(to_tell.begin(), to_tell.end(),
                               [](const ToTell& one) { return one.of.empty(); }),
                to_tell.end());
}

// It comes to a group in which its peers have lost the call: whoever waits for what it loses now
// is told as well.
Failure World::TakeAtItsCall(int64_t rank, const IssuedCall& comes) {
  auto& to_tell = ranks_[rank].to_tell;
  for (auto one = to_tell.begin(); one != to_tell.end(); ++one) {
    const auto is_of_it = [&](const IssuedCall& lost) {
      return OfOneGroup(lost, comes, rank, ranks_.size());
    };
    const auto rest = std::remove_if(one->of.begin(), one->of.end(), is_of_it);
    if (rest == one->of.end()) continue;
    one->of.erase(rest, one->of.end());
    const Failure failure = one->failure;
    if (one->of.empty()) to_tell.erase(one);
    Concern concern = Concerned(States(), {rank});
    concern.now.erase(rank);
    TellConcerned(concern, failure, ranks_[rank].began);
    Lose(rank);
    return failure;
  }
  return {};
}

bool World::Forget(int64_t rank, uint64_t where) {
  // Where another thread of the rank has heard of it, its own one still has to: it does not wait
  // for its peers any more.
  if (!Runs(rank) || ranks_[rank].meets) return false;
  auto& to_tell = ranks_[rank].to_tell;
  const auto from_there = [&](const ToTell& one) { return one.of.empty() && one.where == where; };
  to_tell.erase(std::remove_if(to_tell.begin(), to_tell.end(), from_there), to_tell.end());
  return true;
}

void World::Untell(int64_t rank, uint64_t where) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  Forget(rank, where);
}

void World::Told(int64_t rank, uint64_t where, uint64_t failure) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (!Forget(rank, where)) return;
  ForgetWhatIsLost(rank);
  Lose(rank);
  // A rank that was told of what all are has broken its group with that: who hears of it here has
  // been told as well. What else broke a group is another failure.
  if (failure == failure_.number) Know(rank);
}

// What went wrong before, in groups that it has left, is not for calls of its new ones.
void World::BeginAnew(int64_t rank, int time) {
  Rank& self = ranks_[rank];
  if (time <= self.began) return;
  self.began = time;
  const bool untold = failure_ && !self.told && !final_;
  if (!untold && self.to_tell.empty()) return;
  const bool loses = untold || HasToHear(rank);
  self.to_tell.clear();
  if (loses) Lose(rank);
  if (untold) Know(rank);
}

std::shared_ptr<Meeting> World::Join(const RankGroup& group) {
  std::unique_lock lock(monitor_.mutex);
  if (ended_) {
    lock.unlock();
    Outside().Throw();
  }
  const Members members{group.name, group.members};
  const int time = joined_[{members, group.own()}]++;
  const bool of_all = group.IsWorld() && group.members.size() == ranks_.size();
  if (of_all && Runs(group.own())) BeginAnew(group.own(), time);
  Joint& joint = meetings_[{members, time}];
  if (joint.joined == 0) {
    joint.kept = std::make_shared<Meeting>(shared_from_this());
    joint.meeting = joint.kept;
  }
  std::shared_ptr<Meeting> meeting = joint.kept;
  if (++joint.joined >= group.members.size()) joint.kept.reset();
  const std::string stopped = stopped_;
  std::vector<int64_t> gone;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].finished) gone.push_back(static_cast<int64_t>(rank));
  }
  lock.unlock();  // a meeting that breaks asks for it with its own
  for (int64_t rank : gone) meeting->Gone(rank);
  if (!stopped.empty()) meeting->Stop(stopped);
  return meeting;
}

}  // namespace xla_cc
