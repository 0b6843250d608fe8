#include "torch_xla_cc/threads/world.h"

#include <algorithm>

#include "torch_xla_cc/threads/meeting.h"

namespace xla_cc {
namespace {

using Lock = std::unique_lock<std::mutex>;

// The world that runs. Never destroyed: threads may outlive main.
struct Running {
  std::mutex mutex;
  std::weak_ptr<World> world;
};
Running& TheRunning() {
  static auto* running = new Running;
  return *running;
}

// That of this thread, once it has entered one.
thread_local bool has_entered = false;
thread_local std::weak_ptr<World> entered;
thread_local int64_t entered_as = -1;

Failure Stopped() { return Because("the ranks were stopped"); }

}  // namespace

std::shared_ptr<World> World::Begin(int64_t size, std::chrono::milliseconds timeout) {
  auto world = std::make_shared<World>(size, timeout);
  const std::lock_guard<std::mutex> lock(TheRunning().mutex);
  TheRunning().world = world;
  return world;
}

std::shared_ptr<World> World::OfThread() {
  if (has_entered) return entered.lock();
  const std::lock_guard<std::mutex> lock(TheRunning().mutex);
  return TheRunning().world.lock();
}

Failure World::Outside() {
  if (has_entered) {
    return Because(
        "a collective was called on the thread of a rank whose launch has ended. Have fn wait for "
        "what it starts before it returns");
  }
  return Because(
      "a collective between CPU devices was called outside of torch_xla_cc.launch. There the "
      "ranks are threads that have to meet before they run: start them with "
      "torch_xla_cc.launch(fn, args, nprocs)");
}

bool World::Outlived() {
  if (!has_entered) return false;
  const std::shared_ptr<World> own = entered.lock();
  return !own || own->HasEnded();
}

World::World(int64_t size, std::chrono::milliseconds timeout)
    : ranks_(size),
      timeout_(timeout),
      runner_(monitor_, [this](int64_t rank, const std::string& why) { Fail(rank, why); }) {}

void World::Enter(int64_t rank) {
  has_entered = true;
  entered = weak_from_this();
  entered_as = rank;
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (Runs(rank)) ranks_[rank].entered = true;
}

bool World::MayIssue(int64_t rank) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  return !Runs(rank) || IsThreadOf(rank);
}

bool World::IsThreadOf(int64_t rank) const {
  return !ranks_[rank].entered || (has_entered && entered_as == rank);
}

// While that waits for its peers, who asks is another.
bool World::IsOwnThread(int64_t rank) const { return !ranks_[rank].meets && IsThreadOf(rank); }

bool World::HasEnded() {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  return ended_;
}

Failure World::RequireOwnThread(int64_t rank, const std::string& what, Site site) {
  if (MayIssue(rank)) return {};
  return {{{what + " at ", site},
           {": this is not the thread of rank " + std::to_string(rank) +
                ". Only that one calls its collectives and runs its graph: what others do comes at "
                "any time, and to the other ranks in any order. Others may read what it has "
                "computed: have it call torch_xla.sync() first, and read whole tensors, x.cpu()",
            {}}}};
}

std::optional<World::Turn> World::TakeTurn(int64_t rank, bool wait) {
  // A rank that reads another's tensor may be one for which that waits.
  const bool of_another = has_entered && entered_as != rank;
  Lock lock(monitor_.mutex);
  if (of_another || !Runs(rank)) return Turn(nullptr, rank);
  Rank& self = ranks_[rank];
  const auto own = std::this_thread::get_id();
  const auto free = [&] { return ended_ || self.turns == 0 || self.has_turn == own; };
  if (!wait && !free()) return std::nullopt;
  turn_ended_.wait(lock, free);
  if (ended_) return Turn(nullptr, rank);
  self.has_turn = own;
  ++self.turns;
  return Turn(shared_from_this(), rank);
}

void World::EndTurn(int64_t rank) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (--ranks_[rank].turns == 0) turn_ended_.notify_all();
}

void World::End() {
  {
    const std::lock_guard<std::mutex> lock(monitor_.mutex);
    ended_ = true;
    failure_ = {};
    monitor_.changed.notify_all();
    turn_ended_.notify_all();
  }
  for (const auto& meeting : Meetings()) meeting->Stop("the launch has ended");
  decltype(meetings_) dropped;  // without the lock
  {
    const std::lock_guard<std::mutex> lock(monitor_.mutex);
    dropped.swap(meetings_);
  }
  const std::lock_guard<std::mutex> lock(TheRunning().mutex);
  if (TheRunning().world.lock().get() == this) TheRunning().world.reset();
}

Failure World::Issue(int64_t rank, IssuedCall issued) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (!Runs(rank)) return Outside();
  if (Failure failure = TakeFailureLocked(rank)) return failure;
  if (const Failure failure = WhyBrokenLocked(issued.group)) {
    LoseBy(rank, failure);
    return failure;
  }
  issued.order = ++CountOf(issued, rank);
  ranks_[rank].last = issued;
  ranks_[rank].pending.push_back(std::move(issued));
  return {};
}

bool World::HasPending(int64_t rank) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  return Runs(rank) && !ranks_[rank].pending.empty();
}

std::vector<IssuedCall> World::Pending(int64_t rank) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  return Runs(rank) ? ranks_[rank].pending : std::vector<IssuedCall>();
}

void World::Drop(int64_t rank) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (!Runs(rank)) return;
  for (const IssuedCall& issued : ranks_[rank].pending) {
    --CountOf(issued, rank);
  }
  Lose(rank);
}

void World::Lost(int64_t rank) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (Runs(rank)) Lose(rank);
}

void World::Lose(int64_t rank) {
  ranks_[rank].lost = false;
  ranks_[rank].pending.clear();
  ++ranks_[rank].losses;
}

int64_t World::Losses(int64_t rank) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  return Runs(rank) ? ranks_[rank].losses : 0;
}

bool World::IsIdle(int64_t rank) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  return Runs(rank) && ranks_[rank].idle;
}

void World::SetLimit(int64_t rank, std::chrono::milliseconds limit) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (Runs(rank)) ranks_[rank].limit = limit;
}

Failure World::Meet(int64_t rank, Site site, const std::string& program_hash,
                    const HandOver& graph) {
  Lock lock(monitor_.mutex);
  auto& changed = monitor_.changed;
  if (!Runs(rank)) return Stopped();
  Rank& self = ranks_[rank];
  const auto failed = [&] { return ended_ || self.to_tell || Owed(rank); };
  // Handing over a graph waits for the device, and the device for the collectives of the last one:
  // no peer of those may be left behind.
  changed.wait(lock, [&] { return failed() || !self.batch || self.batch->to_hand_over == 0; });
  if (ended_) return Stopped();
  if (Failure failure = TakeFailureLocked(rank)) return failure;
  std::shared_ptr<GraphBatch> batch;
  if (!self.pending.empty()) {
    self.waiting = true;
    self.waits_at = site;
    self.graph = {&graph, program_hash};
    const uint64_t before = self.released;
    Evaluate(rank);
    const auto limit = std::min(timeout_, self.limit);
    self.meets = true;
    const bool in_time =
        changed.wait_for(lock, limit, [&] { return failed() || self.released != before; });
    self.meets = false;
    if (self.released == before) {
      if (ended_) return Stopped();
      self.waiting = false;
      if (in_time) return TakeFailureLocked(rank);
      Failure missing = Missing(States(), rank, limit, self.limit >= timeout_);
      missing.GiveNumber();
      LoseBy(rank, missing);
      return missing;
    }
    // From here on it must go on, whatever fails elsewhere, and if the world ends: its peers will
    // be in their collectives, and one of them may be about to hand over its graph.
    batch = self.batch;
  }
  lock.unlock();
  if (!batch) {
    runner_.RunAlone(rank, graph);
  } else if (batch->leaders.at(rank) == rank) {
    runner_.RunLed(rank, *batch);
  }
  lock.lock();
  if (batch && (batch->gated || batch->leaders.at(rank) != rank)) {
    changed.wait(lock, [&] { return batch->to_hand_over == 0; });
  }
  self.idle = batch && batch->waited_for;
  if (ended_) return Stopped();
  if (batch && batch->failed) return TakeFailureLocked(rank);
  if (graph.wait && !self.idle) {
    lock.unlock();
    graph.wait();
    lock.lock();
    self.idle = true;
  }
  return {};
}

void World::Finish(int64_t rank, Site site) {
  {
    const std::lock_guard<std::mutex> lock(monitor_.mutex);
    if (!Runs(rank)) return;
    ranks_[rank].finished = true;
    ranks_[rank].waits_at = site;
    if (failure_) {
      GoOnIfAllKnow(rank);
    } else {
      Evaluate(rank);
    }
  }
  for (const auto& meeting : Meetings()) meeting->Gone(rank);
}

void World::Fail(int64_t rank, const std::string& message) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  if (!Runs(rank)) return;
  ranks_[rank].finished = true;
  Lose(rank);
  final_ = true;
  // The first failure is the cause; what follows from it is not reported over it.
  if (!failure_) failure_ = Because(message);
  monitor_.changed.notify_all();
}

void World::Abort(const std::string& message) {
  {
    const std::lock_guard<std::mutex> lock(monitor_.mutex);
    if (!failure_) failure_ = Because(message);
    final_ = true;
    stopped_ = message;
    monitor_.changed.notify_all();
  }
  for (const auto& meeting : Meetings()) meeting->Stop(message);
}

std::vector<std::shared_ptr<Meeting>> World::Meetings() {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  std::vector<std::shared_ptr<Meeting>> meetings;
  for (const auto& [key, joint] : meetings_) {
    if (auto open = joint.meeting.lock()) meetings.push_back(std::move(open));
  }
  return meetings;
}

bool World::IsFinal(int64_t) {
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  return final_;
}

bool World::Runs(int64_t rank) const {
  return !ended_ && rank >= 0 && rank < static_cast<int64_t>(ranks_.size());
}

RankStates World::States() const {
  RankStates states;
  for (const Rank& rank : ranks_) states.push_back(&rank);
  return states;
}

void World::Evaluate(int64_t caller) {
  if (failure_) return;
  const Verdict verdict = Judge(States());
  if (!verdict.failure) return Release(verdict.ranks, caller);
  Break({verdict.whose.begin(), verdict.whose.end()}, {}, verdict.failure);
  Evaluate(caller);  // those that it does not concern
}

void World::Release(const std::vector<int64_t>& ranks, int64_t caller) {
  if (ranks.empty()) return;
  std::map<int64_t, Graph> graphs;
  for (int64_t rank : ranks) graphs[rank] = ranks_[rank].graph;
  const size_t running =
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.finished; });
  const auto batch = runner_.Gather(graphs, caller, running == ranks.size());
  for (int64_t rank : ranks) {
    Rank& released = ranks_[rank];
    released.pending.clear();
    released.waiting = false;
    released.batch = batch;
    ++released.released;
  }
  // Those whose graph the caller hands over, which is awake, need not wake before that is done.
  if (batch->programs > 1 || batch->leaders.begin()->second != caller) {
    monitor_.changed.notify_all();
  }
}

}  // namespace xla_cc
