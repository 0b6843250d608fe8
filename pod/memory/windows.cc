#include "pod/memory/windows.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace xla_cc::pod::memory {
namespace {

using std::chrono::microseconds;

constexpr microseconds kShortest{20};
constexpr microseconds kLongest{1000};

bool HaveRead(const GroupState& group, uint64_t number) {
  const auto* end = group.members + group.size;
  return std::all_of(group.members, end,
                     [number](const Member& member) { return member.finished >= number; });
}

}  // namespace

// The first that is free, so that the same few stay in the cache. Where none is, slow members still
// read, or other threads' calls wait in them; nobody rings for that.
uint32_t Windows::Take(const GroupState& group, uint64_t number) {
  for (microseconds pause = kShortest;; pause = std::min(2 * pause, kLongest)) {
    {
      const std::lock_guard<std::mutex> lock(lock_);
      for (uint32_t window = 0; window < kWindows; ++window) {
        Use& use = uses_[window];
        if (use.group == nullptr || HaveRead(*use.group, use.number)) {
          use = {&group, number};
          return window;
        }
      }
    }
    if (region_.ended()) region_.FailEnded();
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace xla_cc::pod::memory
