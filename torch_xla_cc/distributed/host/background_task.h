// Something that runs on a thread of its own, and who waits for it.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>

#include "torch_xla_cc/groupcall/group_call.h"

namespace xla_cc {

class BackgroundTask {
 public:
  // Once: not again on another thread. `f` keeps alive what this is a part of.
  void Start(std::function<void()> f);
  bool started();
  bool ended();
  bool failed();
  // False if it has not ended in time. Throws what it has thrown. 0, c10d's kNoTimeout, waits for
  // as long as it takes.
  bool Wait(Timeout timeout);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  bool ended_ = false;
  std::exception_ptr wrong_;
};

}  // namespace xla_cc
