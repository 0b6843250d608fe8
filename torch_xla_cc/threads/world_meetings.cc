// What the meetings of a world's groups ask of it.
#include <algorithm>

#include "torch_xla_cc/threads/meeting.h"
#include "torch_xla_cc/threads/world.h"

namespace xla_cc {

Failure World::WaitsInItsGraph(int64_t rank, uint64_t group) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (!Runs(rank) || !IsOwnThread(rank)) return {};
  for (size_t other = 0; other < ranks_.size(); ++other) {
    const Rank& peer = ranks_[other];
    if (!peer.waiting || static_cast<int64_t>(other) == rank) continue;
    for (const IssuedCall& issued : peer.pending) {
      if (issued.group != group) continue;
      return {{{"rank " + std::to_string(other) + " runs its graph with " + issued.lowered->name +
                    " at ",
                issued.site}},
              Failure::Kind::kMismatch};
    }
  }
  return {};
}

World::Members World::MembersOf(uint64_t group) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  const auto joint = std::find_if(meetings_.begin(), meetings_.end(),
                                  [&](const auto& one) { return one.second.id == group; });
  return joint == meetings_.end() ? Members() : joint->first.first;
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
  const bool untold = failure_ && !self.told && !final_ && failure_began_ < time;
  if (!untold && !self.to_tell) return;
  self.to_tell = {};
  Lose(rank);
  if (untold) Know(rank);
}

// Of a launch that makes groups for hours. Nobody is in a call of these, or comes to one.
void World::ForgetEndedGroups() {
  if (meetings_.size() < most_meetings_) return;
  for (auto at = meetings_.begin(); at != meetings_.end();) {
    if (!at->second.IsOver()) {
      ++at;
      continue;
    }
    const uint64_t id = at->second.id;
    broken_.erase(id);
    for (Rank& rank : ranks_) {
      rank.counts.erase({id, {}});
    }
    at = meetings_.erase(at);
  }
  most_meetings_ = std::max<size_t>(64, 2 * meetings_.size());
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
  ForgetEndedGroups();
  Joint& joint = meetings_[{members, time}];
  if (joint.joined == 0) {
    joint.kept.reset(new Meeting(shared_from_this()));  // so that its memory goes with it
    joint.meeting = joint.kept;
    joint.id = joint.kept->id();
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
