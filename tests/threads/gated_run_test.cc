#include "torch_xla_cc/threads/gated_run.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace xla_cc {
namespace {

// As torch's locks of devices are.
struct DeviceLock {
  std::mutex mutex;
  std::condition_variable changed;
  bool locked = true;

  void Take() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !locked; });
  }
  void Open() {
    const std::lock_guard lock(mutex);
    locked = false;
    changed.notify_all();
  }
  uintptr_t begin() const { return reinterpret_cast<uintptr_t>(this); }
  uintptr_t end() const { return begin() + sizeof(DeviceLock); }
};

TEST(GatedRun, IsSeenAtItsLockAndNotElsewhere) {
  ASSERT_TRUE(GatedRun::Works());
  for (int i = 0; i < 20; ++i) {
    DeviceLock lock;
    DeviceLock another;
    std::atomic<bool> compiled{false};
    std::atomic<bool> ran{false};
    GatedRun run;
    std::thread opens([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      compiled = true;
      another.Open();
    });
    run.Start(
        [&] {
          another.Take();  // waits here first
          lock.Take();
          ran = true;
        },
        lock.begin(), lock.end());
    EXPECT_TRUE(run.waits());
    EXPECT_TRUE(compiled);
    EXPECT_FALSE(ran);
    opens.join();
    lock.Open();
    run.Join();
    EXPECT_TRUE(ran);
  }
}

TEST(GatedRun, WhatFailsBeforeItsLockIsNotAwaited) {
  DeviceLock lock;
  GatedRun run;
  run.Start([] {}, lock.begin(), lock.end());
  EXPECT_FALSE(run.waits());
}

TEST(GatedRun, SeveralAtATime) {
  constexpr int kRanks = 4;
  std::vector<std::unique_ptr<DeviceLock>> locks;
  std::vector<std::unique_ptr<GatedRun>> runs;
  std::atomic<int> ran{0};
  for (int rank = 0; rank < kRanks; ++rank) {
    locks.push_back(std::make_unique<DeviceLock>());
    runs.push_back(std::make_unique<GatedRun>());
    DeviceLock& lock = *locks.back();
    runs.back()->Start(
        [&] {
          lock.Take();
          ++ran;
        },
        lock.begin(), lock.end());
    EXPECT_TRUE(runs.back()->waits());
  }
  EXPECT_EQ(ran, 0);
  for (const auto& lock : locks) lock->Open();
  runs.clear();  // waits for them
  EXPECT_EQ(ran, kRanks);
}

}  // namespace
}  // namespace xla_cc
