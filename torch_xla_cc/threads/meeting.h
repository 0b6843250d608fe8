// What the ranks of a group that are threads of this process tell each other beside the graph: who
// has come, and values on the host.
#pragma once

#include <any>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "torch_xla_cc/groupcall/group_call.h"
#include "torch_xla_cc/threads/failure.h"

namespace xla_cc {

class World;

// One for all ranks of a group, each of which holds it (World::Join).
class Meeting {
 public:
  // The world that its ranks run in; none for a process of one rank.
  explicit Meeting(std::shared_ptr<World> world) : world_(std::move(world)) {}

  // Of no other, in this process; from 1.
  uint64_t id() const { return id_; }

  // Wakes all who wait: they throw.
  void Stop(const std::string& why);

  // This rank of the launch has returned: who waits for it here throws.
  void Gone(int64_t rank);

  // Breaks it, unless it is broken: a call of this rank has failed, which the others are told.
  void Fail(const RankGroup& group, const Failure& failure);

  // Notes what this rank does as its call of that number. Throws CollectiveMismatch, here and on
  // all ranks that wait, if another rank of the group has noted something else.
  void Announce(const RankGroup& group, const CallPtr& call);
  // Waits until all ranks of the group have come to that call of theirs, and compares what they
  // send each other. Their calls, by rank. Call without the interpreter lock.
  std::vector<CallPtr> Meet(const RankGroup& group, const CallPtr& call);

  // A receive that was asked for, and what has come for it.
  struct Slot {
    int to;
    int from;  // or kAnySource
    int tag;
    CallPtr receive;  // none if nobody has asked yet
    int source = kAnySource;
    CallPtr send;  // none if nothing has come
    std::any value;
  };
  using SlotPtr = std::shared_ptr<Slot>;

  // What is sent from one rank to another with a tag comes in the order in which it was sent, to
  // the receives in the order in which they were asked for.
  void Put(const RankGroup& group, int to, int tag, const CallPtr& call, std::any value);
  SlotPtr Ask(const RankGroup& group, int from, int tag, const CallPtr& call);
  bool HasCome(const SlotPtr& slot);
  // Throws CollectiveTimeout if nothing has come in time, CollectiveMismatch if it does not fit.
  void Await(const RankGroup& group, const SlotPtr& slot, Timeout timeout);

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Numbered {
    std::map<int, CallPtr> calls;  // by rank of the group
    int left = 0;                  // ranks that have read them all
  };

  // These with the lock held, which they let go before they throw.
  void ThrowIfBroken(const RankGroup& group, Lock& lock);
  [[noreturn]] void Break(const RankGroup& group, Lock& lock,
                          const std::function<std::string()>& why, Failure::Kind kind);
  void BreakWith(const RankGroup& group, const Failure& failure);
  // Also by what a rank has lost of it in its graph.
  bool IsBroken();
  // Throws what this rank has not been told yet, which breaks the group; HearIfMust: if others wait
  // for that.
  void Hear(const RankGroup& group, Lock& lock);
  void HearIfMust(const RankGroup& group, Lock& lock);
  // Until something holds, it has broken in any way, or this rank must hear something.
  bool WaitFor(const RankGroup& group, Lock& lock, Timeout timeout,
               const std::function<bool()>& holds);
  bool IsGone(const RankGroup& group, int rank) const {
    return gone_.count(group.members[rank]) > 0;
  }
  // The first member that has not come to it, and never will; -1: none.
  int Missed(const RankGroup& group, const Numbered& numbered) const;
  // That of which a receive waits for in vain.
  int Missed(const RankGroup& group, int from) const;
  [[noreturn]] void BreakFor(const RankGroup& group, Lock& lock, const CallPtr& call, int gone,
                             const std::function<std::string()>& more);

  static uint64_t Next();

  const std::shared_ptr<World> world_;
  const uint64_t id_ = Next();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Numbered> calls_;  // by number
  std::map<int, CallPtr> last_;         // by rank
  std::list<Slot> sent_;                // and not asked for
  std::list<SlotPtr> asked_;            // for what was not sent
  std::set<int64_t> gone_;              // ranks of the launch that have returned
  Failure broken_;
  std::string stopped_;
};

}  // namespace xla_cc
