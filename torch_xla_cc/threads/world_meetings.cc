// What the meetings of a world's groups ask of it.
#include <algorithm>

#include "torch_xla_cc/threads/meeting.h"
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
    for (int64_t rank : loss.ranks) began = std::max(began, ranks_[rank].began);
    std::set<int64_t> all = loss.ranks;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      Rank& other = ranks_[rank];
      const bool untold = failure_ && !other.told;  // of what this one stands for as well
      other.told = other.began > began && !untold;
      if (!other.told) all.insert(static_cast<int64_t>(rank));
    }
    failure_ = failure;
    loss = LossOf(States(), all, loss.groups);
  }
  for (int64_t rank : loss.ranks) {
    // What it has pending stays, or it would not come to hear of this.
    if (rank != raises) ranks_[rank].to_tell.push_back(failure);
    ranks_[rank].waiting = false;
  }
  for (uint64_t group : loss.groups) broken_.emplace(group, failure);
  monitor_.changed.notify_all();
  if (raises < 0) return;
  Lose(raises);
  Hears(raises, failure);
}

void World::Hears(int64_t rank, const Failure& failure) {
  ranks_[rank].to_tell.clear();  // it hears once of what it has lost
  // Also of what all are told: of that it may hear where a group has broken by it.
  if (failure_ && failure.number == failure_.number) Know(rank);
}

Failure World::WhyBroken(uint64_t group) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  const auto broken = broken_.find(group);
  return broken == broken_.end() ? Failure() : broken->second;
}

World::Members World::MembersOf(uint64_t group) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  const auto members = groups_.find(group);
  return members == groups_.end() ? Members() : members->second;
}

uint64_t World::NumberOf(int64_t rank, const Members& members, uint64_t else_) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  const auto joined = joined_.find({members, rank});
  if (joined == joined_.end()) return else_;
  const auto last = meetings_.find({members, joined->second - 1});
  return last == meetings_.end() ? else_ : last->second.id;
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
