// Counts the threads of this library that are at work beside the program's own. What the process
// destroys at its end they may still use: it then ends without that (module.cc).
#pragma once

#include <atomic>

namespace xla_cc {

class AtWork {
 public:
  AtWork() { ++count_; }
  ~AtWork() { --count_; }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

  static bool Any() { return count_ > 0; }
  // The threads are the parent's: the child need not end at once because of them.
  static void Forked() { count_ = 0; }

 private:
  inline static std::atomic<int> count_{0};
};

// Counts the threads that wait for peers in a call.
class WaitsForPeers {
 public:
  WaitsForPeers() { ++count_; }
  ~WaitsForPeers() { --count_; }
  WaitsForPeers(const WaitsForPeers&) = delete;
  WaitsForPeers& operator=(const WaitsForPeers&) = delete;

  static bool Any() { return count_ > 0; }

 private:
  inline static std::atomic<int> count_{0};
};

}  // namespace xla_cc
