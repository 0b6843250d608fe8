// The device process: how it starts, and how it ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace xla_cc::pod {

class Process {
 public:
  // Starts `command`, which finds `socket` as its descriptor 3. From a thread that lives as long as
  // it should: the kernel ends it with that thread. Throws.
  static Process Start(const std::vector<std::string>& command, int socket);

  pid_t pid() const { return pid_; }
  // By SIGSTOP or the like; not by a debugger.
  bool IsStopped() const;
  // Waits for its end, at most so long, then kills it. In words: "was killed by signal 9 (Killed)".
  std::string End(std::chrono::milliseconds patience);

 private:
  explicit Process(pid_t pid) : pid_(pid) {}

  pid_t pid_;
};

}  // namespace xla_cc::pod
