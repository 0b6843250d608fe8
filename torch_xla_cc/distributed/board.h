// What ranks that are threads of this process tell each other beside the graph: who has come, and
// tensors on the host. Keyed by the name of the group, so nothing of one group meets another.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "torch_xla_cc/distributed/transport.h"

namespace xla_cc {

class Board {
 public:
  static Board& Get();

  // A launch begins or ends: nothing is left of what was.
  void Clear();
  // Wakes all who wait: they throw.
  void Stop(const std::string& why);

  // What every rank of the group has put in at its call of that number, by rank. Waits for all of
  // them; throws RanksDisagree, which names who has not come. Call without the interpreter lock.
  std::vector<std::string> Exchange(const Group& group, uint64_t number, const std::string& value,
                                    Timeout timeout);

  // A receive that was asked for, and what has come for it.
  struct Slot {
    int to;
    int from;  // -1 for any source
    int tag;
    bool filled = false;
    int source = -1;
    at::Tensor x;
  };
  using SlotPtr = std::shared_ptr<Slot>;

  // What is sent from one rank to another with a tag comes in the order in which it was sent, to
  // the receives in the order in which they were asked for.
  void Put(const Group& group, int to, int tag, at::Tensor x);
  SlotPtr Ask(const Group& group, int from, int tag);
  bool HasCome(const SlotPtr& slot);
  // Throws RanksDisagree if nothing has come in time.
  void Await(const Group& group, const SlotPtr& slot, Timeout timeout);

 private:
  using Meeting = std::pair<std::string, uint64_t>;  // group, number

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Meeting, std::map<int, std::string>> meetings_;
  std::map<Meeting, int> left_;  // who has read them all
  // By group: sent and not asked for, asked for and not sent. Filled slots, but for from and to.
  std::map<std::string, std::list<Slot>> sent_;
  std::map<std::string, std::list<SlotPtr>> asked_;
  std::string stopped_;
};

}  // namespace xla_cc
