// What the meetings of a world's groups ask of it.
#include <algorithm>

#include "torch_xla_cc/threads/meeting.h"
#include "torch_xla_cc/threads/world.h"

namespace xla_cc {

void World::Disagree(int64_t rank, const Failure& failure, uint64_t group) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (!Runs(rank) || final_) return;
  const bool own = IsOwnThread(rank);
  Tell(LossOf(States(), {}, {group}), failure, own ? rank : -1);
  if (own) LoseBy(rank, failure);
}

void World::Told(int64_t rank, const Failure& failure) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  // Of what its own thread loses that hears by itself.
  if (!Runs(rank) || !IsOwnThread(rank)) return;
  LoseBy(rank, failure);
  // A rank that was told of what all are has broken its group with that: who hears of it here has
  // been told as well. What else broke a group is another failure.
  if (failure.number == failure_.number) Know(rank);
}

void World::LoseBy(int64_t rank, const Failure& failure) {
  Tell(LossOf(States(), {rank}, {}), failure, rank);
  Lose(rank);
  ranks_[rank].to_tell.clear();
}

void World::Tell(const Loss& loss, const Failure& failure, int64_t but) {
  for (int64_t rank : loss.ranks) {
    if (rank == but) continue;
    // What it has pending stays, or it would not come to hear of this.
    ranks_[rank].to_tell.push_back(failure);
    ranks_[rank].waiting = false;
  }
  for (uint64_t group : loss.groups) broken_.emplace(group, failure);
  monitor_.changed.notify_all();
}

Failure World::WhyBroken(uint64_t group) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  const auto broken = broken_.find(group);
  return broken == broken_.end() ? Failure() : broken->second;
}

uint64_t World::CurrentGroup(int64_t rank, uint64_t group) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  const auto members = groups_.find(group);
  if (members == groups_.end()) return group;
  const auto joined = joined_.find({members->second, rank});
  if (joined == joined_.end()) return group;
  const auto last = meetings_.find({members->second, joined->second - 1});
  return last == meetings_.end() ? group : last->second.id;
}

// What went wrong before, in groups that it has left, is not for calls of its new ones.
void World::BeginAnew(int64_t rank, int time) {
  Rank& self = ranks_[rank];
  if (time <= self.began) return;
  self.began = time;
  const bool untold = failure_ && !self.told && !final_;
  if (!untold && self.to_tell.empty()) return;
  self.to_tell.clear();
  Lose(rank);
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
    joint.id = joint.kept->id();
    groups_[joint.id] = members;
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
