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
  // Where another thread of the rank has found it, its own one hears of it where it waits.
  if (ranks_[rank].meets) return TellOne(rank, failure, where);
  LoseBy(rank, failure);
}

void World::Tell(int64_t rank, const std::set<int64_t>& coming, const Failure& failure,
                 uint64_t where) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const auto other = static_cast<int64_t>(r);
    if (other == rank) continue;
    const auto& pending = ranks_[r].pending;
    const bool is_there = std::any_of(pending.begin(), pending.end(), [&](const IssuedCall& one) {
      return where != 0 && one.group == where;
    });
    const bool in_vain = ranks_[r].waiting && (is_there || HaveOneInCommon(States(), rank, other));
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
    if (lost.empty() || ranks_[rank].began > began) continue;
    ranks_[rank].to_tell.push_back({0, failure, lost});
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

void World::LoseBy(int64_t rank, const Failure& failure) {
  Concern concern = Concerned(States(), {rank});
  // Of a launch the ranks that have not come may try again with this one.
  const auto of_launch = [](const IssuedCall& lost) { return lost.group == 0; };
  for (auto& [other, lost] : concern.later) {
    lost.erase(std::remove_if(lost.begin(), lost.end(), of_launch), lost.end());
  }
  TellOthers(rank, concern, failure);
  Lose(rank);
  ForgetWhatIsLost(rank);
}

void World::TellOthers(int64_t rank, Concern concern, const Failure& failure) {
  concern.now.erase(rank);
  TellConcerned(concern, failure, ranks_[rank].began);
}

Failure World::TakeOf(int64_t rank, const std::function<bool(const IssuedCall&)>& like_that) {
  auto& to_tell = ranks_[rank].to_tell;
  for (auto one = to_tell.begin(); one != to_tell.end(); ++one) {
    const auto rest = std::remove_if(one->of.begin(), one->of.end(), like_that);
    if (rest == one->of.end()) continue;
    one->of.erase(rest, one->of.end());
    const Failure failure = one->failure;
    if (one->of.empty()) to_tell.erase(one);
    return failure;
  }
  return {};
}

// It comes to a group in which its peers have lost the call; if they have come there once more,
// they wait in vain for this.
Failure World::TakeAtItsCall(int64_t rank, const IssuedCall& comes) {
  Failure failure = TakeOf(
      rank, [&](const IssuedCall& lost) { return OfOneGroup(lost, comes, rank, ranks_.size()); });
  if (!failure) return {};
  TellOthers(rank, Concerned(States(), {rank}), failure);
  ranks_[rank].pending = {comes};
  TellOthers(rank, {false, Concerned(States(), {rank}).now, {}}, failure);
  Lose(rank);
  return failure;
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

void World::Told(int64_t rank, uint64_t where, const Failure& failure) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (!Forget(rank, where)) return;
  while (TakeOf(rank, [&](const IssuedCall& lost) { return lost.group == where; })) {
  }
  LoseBy(rank, failure);
  // A rank that was told of what all are has broken its group with that: who hears of it here has
  // been told as well. What else broke a group is another failure.
  if (failure.number == failure_.number) Know(rank);
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
