#include "pod/wanted.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace xla_cc::pod {
namespace {

struct Wanted {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t times = 0;
};
Wanted& TheWanted() {
  static auto* wanted = new Wanted;  // never destroyed: who waits may outlive main
  return *wanted;
}

}  // namespace

void NoteWanted() {
  const std::lock_guard lock(TheWanted().mutex);
  ++TheWanted().times;
  TheWanted().changed.notify_all();
}

}  // namespace xla_cc::pod

// How often it was noted: more than `seen`, or as often after so long.
extern "C" __attribute__((visibility("default"))) int64_t
torch_xla_cc_pod_wanted(int64_t seen, int64_t milliseconds) {
  auto& wanted = xla_cc::pod::TheWanted();
  std::unique_lock lock(wanted.mutex);
  wanted.changed.wait_for(lock, std::chrono::milliseconds(milliseconds),
                          [&] { return wanted.times > seen; });
  return wanted.times;
}
