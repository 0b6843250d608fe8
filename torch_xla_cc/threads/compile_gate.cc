#include "torch_xla_cc/threads/compile_gate.h"

#include <sys/syscall.h>
#include <torch/csrc/lazy/backend/backend_interface.h>
#include <torch/csrc/lazy/core/lazy_graph_executor.h>
#include <torch/csrc/lazy/core/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace xla_cc {
namespace {

// The device locks of torch are for its backends.
struct Executor : torch::lazy::LazyGraphExecutor {
  using LazyGraphExecutor::DeviceLocker;
  using LazyGraphExecutor::DeviceLockerArena;
};

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

struct CompileGate::Lock {
  explicit Lock(int64_t rank) {
    const torch::lazy::BackendDevice device =
        torch::lazy::getBackend()->GetBackendDevice(c10::Device(c10::kXLA, rank));
    auto* arena = Executor::DeviceLockerArena::Get();
    held = arena->LockDevices({device});
    const auto locker = arena->GetLocker(device);
    begin = reinterpret_cast<uintptr_t>(locker.get());
    end = begin + sizeof(Executor::DeviceLocker);
  }
  bool HoldsUp(int64_t thread) const {
    uintptr_t address = 0;
    return WaitsOn(thread, &address) && begin <= address && address < end;
  }

  std::vector<torch::lazy::ExceptionCleanup> held;
  uintptr_t begin = 0;  // where the lock is in memory
  uintptr_t end = 0;
  bool waits = false;  // the program, at the lock
  std::thread runner;
};

bool CompileGate::Works() {
  static const bool works = [] {
    uintptr_t address = 0;
    return WaitsOn(ThisThread(), &address);
  }();
  return works;
}

CompileGate::CompileGate(int64_t rank) : lock_(std::make_unique<Lock>(rank)) {}
CompileGate::~CompileGate() { Open(false); }
bool CompileGate::Waits() const { return lock_->waits; }

void CompileGate::Compile(std::function<void()> run) {
  const auto returned = std::make_shared<std::atomic<bool>>(false);
  const auto thread = std::make_shared<std::atomic<int64_t>>(0);
  lock_->runner = std::thread([run = std::move(run), returned, thread] {
    *thread = ThisThread();
    run();
    *returned = true;
  });
  for (auto nap = kShortestNap; !*returned; nap = std::min(2 * nap, kLongestNap)) {
    lock_->waits = *thread != 0 && lock_->HoldsUp(*thread);
    if (lock_->waits) break;
    std::this_thread::sleep_for(nap);
  }
}

void CompileGate::Open(bool go) {
  // The next thread to take the lock raises its status, and that must be the program's.
  if (!go && lock_->waits) {
    for (auto& held : lock_->held) {
      held.SetStatus(std::make_exception_ptr(std::runtime_error("turned away")));
    }
  }
  lock_->held.clear();
  if (lock_->runner.joinable()) lock_->runner.join();
}

int64_t TensorsMade() {
  return torch::lazy::LazyTensor::Data(torch::lazy::BackendDevice()).unique_id;
}

}  // namespace xla_cc
