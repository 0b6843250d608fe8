// What ranks that are threads of this process tell each other beside the graph: who has come, and
// tensors on the host. Keyed by the name of the group, so nothing of one group meets another.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
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

  // First in, first out for each sender, receiver and tag.
  void Put(const Group& group, int to, int tag, at::Tensor x);
  // Waits for one. `from` is -1 for any source; returns who sent it.
  std::pair<int, at::Tensor> Take(const Group& group, int from, int tag, Timeout timeout);

 private:
  using Meeting = std::pair<std::string, uint64_t>;    // group, number
  using Box = std::tuple<std::string, int, int, int>;  // group, from, to, tag

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Meeting, std::map<int, std::string>> meetings_;
  std::map<Meeting, int> left_;  // who has read them all
  std::map<Box, std::deque<at::Tensor>> boxes_;
  std::string stopped_;
};

}  // namespace xla_cc
