#include "torch_xla_cc/threads/gated_run.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>

namespace xla_cc {
namespace {

constexpr std::chrono::microseconds kShortestNap{20};
constexpr std::chrono::microseconds kLongestNap{2000};

int64_t ThisThread() { return syscall(SYS_gettid); }

// The first argument of the system call that a thread of this process waits in; 0 if it is in none.
// False if the system does not tell.
bool WaitsOn(int64_t thread, uintptr_t* address) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/syscall";
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return false;
  int64_t number = -1;
  uintptr_t first = 0;
  const int read = std::fscanf(file, "%" SCNd64 " %" SCNxPTR, &number, &first);
  std::fclose(file);
  *address = read == 2 && number >= 0 ? first : 0;
  return read != EOF;
}

}  // namespace

bool GatedRun::Works() {
  static const bool works = [] {
    uintptr_t address = 0;
    return WaitsOn(ThisThread(), &address);
  }();
  return works;
}

void GatedRun::Start(std::function<void()> run, uintptr_t begin, uintptr_t end) {
  const auto returned = std::make_shared<std::atomic<bool>>(false);
  const auto thread = std::make_shared<std::atomic<int64_t>>(0);
  runner_ = std::thread([run = std::move(run), returned, thread] {
    *thread = ThisThread();
    run();
    *returned = true;
  });
  for (auto nap = kShortestNap; !*returned; nap = std::min(2 * nap, kLongestNap)) {
    uintptr_t address = 0;
    waits_ = *thread != 0 && WaitsOn(*thread, &address) && begin <= address && address < end;
    if (waits_) break;
    std::this_thread::sleep_for(nap);
  }
}

void GatedRun::Join() {
  if (runner_.joinable()) runner_.join();
}

}  // namespace xla_cc
