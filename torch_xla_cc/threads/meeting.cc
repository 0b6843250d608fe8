#include "torch_xla_cc/threads/meeting.h"

#include <algorithm>
#include <atomic>

#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/threads/world.h"

namespace xla_cc {
namespace {

// How often who waits looks whether the group has broken in a graph, or there is something to hear.
constexpr Timeout kLook{200};

// In words, with the line; takes the interpreter lock.
std::string Words(const CallPtr& call) { return call->what + " at " + Text(call->site); }

}  // namespace

uint64_t Meeting::Next() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void Meeting::Stop(const std::string& why) {
  const std::lock_guard lock(mutex_);
  stopped_ = why;
  changed_.notify_all();
}

void Meeting::Gone(int64_t rank) {
  const std::lock_guard lock(mutex_);
  gone_.insert(rank);
  changed_.notify_all();
}

int Meeting::Missed(const RankGroup& group, const Numbered& numbered) const {
  if (gone_.empty()) return -1;  // asked for at each wake
  for (int rank = 0; rank < group.size(); ++rank) {
    if (numbered.calls.count(rank) == 0 && IsGone(group, rank)) return rank;
  }
  return -1;
}

int Meeting::Missed(const RankGroup& group, int from) const {
  if (from != kAnySource) return IsGone(group, from) ? from : -1;
  int gone = -1;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank) continue;
    if (!IsGone(group, rank)) return -1;
    gone = rank;
  }
  return gone;
}

void Meeting::BreakFor(const RankGroup& group, Lock& lock, const CallPtr& call, int gone,
                       const std::function<std::string()>& more) {
  // It may have ended for something that this rank has not been told yet.
  Hear(group, lock);
  Break(
      group, lock,
      [&] {
        return "group " + group.name + ": " + RankName(group, group.rank) + " waits with " +
               Words(call) + ", and " + RankName(group, gone) + " has ended without calling it" +
               more();
      },
      Failure::Kind::kMismatch);
}

void Meeting::Hear(const RankGroup& group, Lock& lock) {
  const Failure cause = world_ ? world_->TakeFailure(group.own(), id_) : Failure();
  if (!cause) return;
  BreakWith(group, cause);
  lock.unlock();
  cause.Throw();
}

void Meeting::HearIfMust(const RankGroup& group, Lock& lock) {
  if (world_ && world_->MustHear(group.own())) Hear(group, lock);
}

bool Meeting::IsBroken() {
  if (!broken_ && world_) broken_ = world_->WhyBroken(id_);
  return !stopped_.empty() || broken_;
}

bool Meeting::WaitFor(const RankGroup& group, Lock& lock, Timeout timeout,
                      const std::function<bool()>& holds) {
  const auto began = std::chrono::steady_clock::now();
  while (!holds() && !IsBroken() && !(world_ && world_->MustHear(group.own()))) {
    const auto waited =
        std::chrono::duration_cast<Timeout>(std::chrono::steady_clock::now() - began);
    if (waited >= timeout) return false;
    changed_.wait_for(lock, std::min(timeout - waited, kLook));
  }
  return true;
}

void Meeting::ThrowIfBroken(const RankGroup& group, Lock& lock) {
  if (!IsBroken()) return;
  if (!stopped_.empty()) throw RanksDisagree(stopped_);
  const Failure failure = broken_;
  lock.unlock();
  if (world_) world_->Told(group.own(), failure);
  failure.Throw();
}

void Meeting::Break(const RankGroup& group, Lock& lock, const std::function<std::string()>& why,
                    Failure::Kind kind) {
  lock.unlock();  // words need the interpreter lock, whose owner may wait for this one
  Failure failure = Because(why(), kind);
  failure.GiveNumber();
  lock.lock();
  ThrowIfBroken(group, lock);  // another was first
  BreakWith(group, failure);
  lock.unlock();
  failure.Throw();
}

void Meeting::BreakWith(const RankGroup& group, const Failure& failure) {
  broken_ = failure;
  broken_.GiveNumber();  // if it is of this rank alone
  changed_.notify_all();
  // With the lock, or who finds it broken may be told of it once more, in a call of another group.
  if (world_) world_->Disagree(group.own(), broken_, id_);
}

void Meeting::Fail(const RankGroup& group, const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (!IsBroken()) BreakWith(group, failure);
}

void Meeting::Announce(const RankGroup& group, const CallPtr& call) {
  Lock lock(mutex_);
  ThrowIfBroken(group, lock);
  last_[group.rank] = call;
  if (call->number == 0) return;
  Numbered& numbered = calls_[call->number];
  numbered.calls[group.rank] = call;
  const auto all_are = [&](auto like) {
    return std::all_of(numbered.calls.begin(), numbered.calls.end(),
                       [&](const auto& its) { return like(*its.second); });
  };
  const bool same = all_are([&](const GroupCall& its) { return its.what == call->what; });
  changed_.notify_all();
  if (!same) {
    const std::map<int, CallPtr> calls = numbered.calls;
    Break(
        group, lock,
        [&] {
          RankGroup come = group;  // those who are there
          come.members.clear();
          std::vector<Said> said;
          for (const auto& [rank, its] : calls) {
            come.members.push_back(group.members[rank]);
            said.push_back(SaidOf(*its));
          }
          return Mismatch(come, said, false);
        },
        Failure::Kind::kMismatch);
  }
  // Those who do not meet here only compare. Who does still needs it.
  const bool all = numbered.calls.size() == group.members.size();
  if (all && all_are([](const GroupCall& its) { return !its.meets; })) calls_.erase(call->number);
}

std::vector<CallPtr> Meeting::Meet(const RankGroup& group, const CallPtr& call) {
  Lock lock(mutex_);
  const size_t size = group.members.size();
  Numbered& numbered = calls_[call->number];
  bool in_time = true;
  // If all have come, what another does next is no part of this.
  while (numbered.calls.size() < size && in_time && Missed(group, numbered) < 0) {
    Failure in_graph;
    in_time = WaitFor(group, lock, call->timeout, [&] {
      if (numbered.calls.size() == size || Missed(group, numbered) >= 0) return true;
      in_graph = world_ ? world_->WaitsInItsGraph(group.own(), id_) : Failure();
      return bool(in_graph);
    });
    if (numbered.calls.size() == size) break;
    ThrowIfBroken(group, lock);
    HearIfMust(group, lock);
    if (in_graph) {
      Break(
          group, lock,
          [&] {
            return "group " + group.name + ": " + RankName(group, group.rank) + " waits with " +
                   Words(call) + ", and " + in_graph.Text() +
                   ". Every rank of a group must make the same calls in the same order";
          },
          Failure::Kind::kMismatch);
    }
  }
  if (const int gone = Missed(group, numbered); gone >= 0) {
    BreakFor(group, lock, call, gone, [] { return std::string(); });
  }
  if (!in_time) {
    std::map<int, CallPtr> missing;  // and what they called last
    for (int rank = 0; rank < group.size(); ++rank) {
      if (numbered.calls.count(rank)) continue;
      const auto found = last_.find(rank);
      missing[rank] = found == last_.end() ? nullptr : found->second;
    }
    Break(
        group, lock,
        [&] {
          std::string text = "group " + group.name + ": " + RankName(group, group.rank) +
                             " waited the timeout of " + Milliseconds(call->timeout) + " in " +
                             Words(call);
          for (const auto& [rank, last] : missing) {
            text += "; " + RankName(group, rank) + " has not come, and " +
                    (last ? "last called " + Words(last) : "made no call of this group");
          }
          return text;
        },
        Failure::Kind::kTimeout);
  }
  std::vector<CallPtr> calls;
  for (const auto& [rank, its] : numbered.calls) calls.push_back(its);
  if (++numbered.left == static_cast<int>(size)) calls_.erase(call->number);
  lock.unlock();
  // All ranks have the same before them, and so throw, or not, alike.
  std::vector<Said> said;
  for (const CallPtr& its : calls) said.push_back(SaidWithoutSite(*its));
  if (Mismatch(group, said, false).empty()) return calls;
  lock.lock();
  Break(
      group, lock,
      [&] {
        for (size_t i = 0; i < calls.size(); ++i) said[i] = SaidOf(*calls[i]);
        return Mismatch(group, said, false);
      },
      Failure::Kind::kMismatch);
}

void Meeting::Put(const RankGroup& group, int to, int tag, const CallPtr& call, std::any value) {
  const std::lock_guard lock(mutex_);
  asked_.remove_if([](const SlotPtr& slot) { return slot.use_count() == 1; });  // were given up
  for (auto at = asked_.begin(); at != asked_.end(); ++at) {
    Slot& slot = **at;
    if (slot.to != to || slot.tag != tag) continue;
    if (slot.from != kAnySource && slot.from != group.rank) continue;
    slot.source = group.rank;
    slot.send = call;
    slot.value = std::move(value);
    asked_.erase(at);
    changed_.notify_all();
    return;
  }
  sent_.push_back({to, group.rank, tag, nullptr, group.rank, call, std::move(value)});
}

Meeting::SlotPtr Meeting::Ask(const RankGroup& group, int from, int tag, const CallPtr& call) {
  const std::lock_guard lock(mutex_);
  for (auto at = sent_.begin(); at != sent_.end(); ++at) {
    if (at->to != group.rank || at->tag != tag) continue;
    if (from != kAnySource && at->source != from) continue;
    auto slot = std::make_shared<Slot>(std::move(*at));
    slot->receive = call;
    sent_.erase(at);
    return slot;
  }
  auto slot = std::make_shared<Slot>(Slot{group.rank, from, tag, call, kAnySource, nullptr, {}});
  asked_.push_back(slot);
  return slot;
}

bool Meeting::HasCome(const SlotPtr& slot) {
  const std::lock_guard lock(mutex_);
  return slot->send != nullptr;
}

void Meeting::Await(const RankGroup& group, const SlotPtr& slot, Timeout timeout) {
  Lock lock(mutex_);
  WaitFor(group, lock, timeout, [&] { return slot->send || Missed(group, slot->from) >= 0; });
  if (slot->send) {
    if (slot->send->payload == slot->receive->payload) return;
    Break(
        group, lock,
        [&] {
          return "group " + group.name + ": " + RankName(group, slot->source) + " calls " +
                 Words(slot->send) + ", and " + RankName(group, group.rank) + " " +
                 Words(slot->receive) + ". Send and receive one shape and dtype";
        },
        Failure::Kind::kMismatch);
  }
  asked_.remove(slot);
  ThrowIfBroken(group, lock);
  HearIfMust(group, lock);
  std::vector<std::pair<int, CallPtr>> others;
  for (const Slot& sent : sent_) others.emplace_back(sent.source, sent.send);
  const auto unreceived = [&] {
    std::string text = ". Sent and not received: ";
    for (const auto& [source, call] : others) {
      text += RankName(group, source) + " " + Words(call) + "; ";
    }
    return text + (others.empty() ? "nothing" : "that is all");
  };
  if (const int gone = Missed(group, slot->from); gone >= 0) {
    BreakFor(group, lock, slot->receive, gone, unreceived);
  }
  Break(
      group, lock,
      [&] {
        std::string text = "group " + group.name + ": " + RankName(group, group.rank) +
                           " waited the timeout of " + Milliseconds(timeout) + " in " +
                           Words(slot->receive) + ", and nothing was sent to it";
        return text + unreceived();
      },
      Failure::Kind::kTimeout);
}

}  // namespace xla_cc
