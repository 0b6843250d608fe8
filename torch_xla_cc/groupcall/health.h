// What has broken a group.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

namespace xla_cc {

// A group is of no use after its first failure between ranks: they no longer agree on what comes
// next.
class Health {
 public:
  explicit Health(int64_t rank) : rank_(rank) {}
  // The first that breaks it has the recorder dump the last calls of this rank.
  void Break(const std::exception_ptr& error);
  void ThrowIfBroken();

 private:
  const int64_t rank_;
  std::mutex mutex_;
  std::exception_ptr error_;  // the first
};

}  // namespace xla_cc
