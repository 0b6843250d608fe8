// The flight recorder: the last calls of the ranks in this process, for when one of them fails.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "torch_xla_cc/groupcall/group_call.h"

namespace xla_cc {

class Recorder {
 public:
  static Recorder& Get();

  // How many calls are kept, of each rank.
  void SetCapacity(size_t capacity);
  void Add(const CallPtr& call);
  // A rank's, the oldest first.
  std::vector<CallPtr> Of(int64_t rank);
  void Clear();

  // What Dump calls: with the rank, and why.
  using Dumper = std::function<void(int64_t, const std::string&)>;
  void SetDumper(Dumper dumper);
  void Dump(int64_t rank, const std::string& why);

 private:
  std::mutex mutex_;
  Dumper dumper_;
  size_t capacity_ = 1000;
  std::vector<std::deque<CallPtr>> by_rank_;
};

}  // namespace xla_cc
