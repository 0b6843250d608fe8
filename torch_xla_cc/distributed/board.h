// What ranks that are threads of this process tell each other beside the graph: who has come, and
// tensors on the host. Keyed by the name of the group, so nothing of one group meets another.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "torch_xla_cc/distributed/transport.h"
#include "torch_xla_cc/ranks.h"

namespace xla_cc {

class Board {
 public:
  static Board& Get();

  // A launch begins or ends: nothing is left of what was.
  void Clear();
  // Wakes all who wait: they throw.
  void Stop(const std::string& why);

  // Notes what this rank does as its call of that number. Throws CollectiveMismatch, here and on
  // all ranks that wait, if another rank of the group has noted something else.
  void Announce(const Group& group, const CallPtr& call);
  // Waits until all ranks of the group have come to that call of theirs, and compares what they
  // send each other. Their calls, by rank. Call without the interpreter lock.
  std::vector<CallPtr> Meet(const Group& group, const CallPtr& call);

  // A receive that was asked for, and what has come for it.
  struct Slot {
    int to;
    int from;  // or kAnySource
    int tag;
    CallPtr receive;  // none if nobody has asked yet
    int source = kAnySource;
    CallPtr send;  // none if nothing has come
    at::Tensor x;
  };
  using SlotPtr = std::shared_ptr<Slot>;

  // What is sent from one rank to another with a tag comes in the order in which it was sent, to
  // the receives in the order in which they were asked for.
  void Put(const Group& group, int to, int tag, const CallPtr& call, at::Tensor x);
  SlotPtr Ask(const Group& group, int from, int tag, const CallPtr& call);
  bool HasCome(const SlotPtr& slot);
  // Throws CollectiveTimeout if nothing has come in time, CollectiveMismatch if it does not fit.
  void Await(const Group& group, const SlotPtr& slot, Timeout timeout);

 private:
  struct Meeting {
    std::map<int, CallPtr> calls;  // by rank of the group
    int left = 0;                  // ranks that have read them all
  };
  using Key = std::pair<std::string, uint64_t>;  // group, number of the call
  struct Broken {
    std::string why;
    Failure::Kind kind;
  };

  // These with the lock held, which they may let go before they throw.
  void ThrowIfBroken(const Group& group, std::unique_lock<std::mutex>& lock);
  [[noreturn]] void Break(const Group& group, std::unique_lock<std::mutex>& lock,
                          const std::function<std::string()>& why, Failure::Kind kind);
  bool IsBroken(const Group& group) const { return !stopped_.empty() || broken_.count(group.name); }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Meeting> meetings_;
  std::map<std::string, std::map<int, CallPtr>> last_;  // by group and rank
  // By group: sent and not asked for, asked for and not sent.
  std::map<std::string, std::list<Slot>> sent_;
  std::map<std::string, std::list<SlotPtr>> asked_;
  std::map<std::string, Broken> broken_;  // by group
  std::string stopped_;
};

}  // namespace xla_cc
