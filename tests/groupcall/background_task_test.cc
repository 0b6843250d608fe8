#include "torch_xla_cc/distributed/host/background_task.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "torch_xla_cc/groupcall/at_work.h"

namespace xla_cc {
namespace {

constexpr Timeout kLong{60'000};
constexpr Timeout kShort{5};

// Kept alive by what runs, like a Work that nobody keeps.
struct Owner {
  BackgroundTask task;
  std::atomic<int> runs{0};
};

TEST(BackgroundTask, RunsOnceWhoeverStartsIt) {
  for (int i = 0; i < 50; ++i) {
    const auto owner = std::make_shared<Owner>();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([owner] {
        owner->task.Start([owner] { ++owner->runs; });
        EXPECT_TRUE(owner->task.started());
        EXPECT_TRUE(owner->task.Wait(kLong));
        EXPECT_TRUE(owner->task.ended());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(owner->runs, 1);
    EXPECT_FALSE(owner->task.failed());
  }
}

TEST(BackgroundTask, AllWhoWaitGetWhatItHasThrown) {
  const auto owner = std::make_shared<Owner>();
  std::atomic<bool> go{false};
  owner->task.Start([owner, &go] {
    while (!go) std::this_thread::yield();
    throw std::runtime_error("it broke");
  });
  EXPECT_FALSE(owner->task.Wait(kShort));
  EXPECT_FALSE(owner->task.ended());
  std::vector<std::thread> threads;
  for (const Timeout timeout : {kLong, Timeout(0)}) {  // 0: for as long as it takes
    threads.emplace_back([owner, timeout] {
      try {
        owner->task.Wait(timeout);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "it broke");
      }
    });
  }
  go = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(owner->task.failed());
}

TEST(BackgroundTask, NobodyNeedKeepIt) {
  std::weak_ptr<Owner> seen;
  std::atomic<bool> began{false};
  std::atomic<bool> go{false};
  {
    const auto owner = std::make_shared<Owner>();
    seen = owner;
    owner->task.Start([owner, &began, &go] {
      began = true;
      while (!go) std::this_thread::yield();
    });
  }
  while (!began) std::this_thread::yield();
  EXPECT_FALSE(seen.expired());
  EXPECT_TRUE(AtWork::Any());
  go = true;
  while (AtWork::Any()) std::this_thread::yield();
  EXPECT_TRUE(seen.expired());  // before it is said that nothing is at work
}

}  // namespace
}  // namespace xla_cc
