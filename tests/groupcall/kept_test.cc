// What is kept for all calls, and what holds for the calls of a thread.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "tests/dice/dice.h"
#include "torch_xla_cc/aged_cache.h"
#include "torch_xla_cc/distributed/call_mode.h"

namespace xla_cc {
namespace {

struct Number {
  int64_t value;
  bool operator==(const Number& other) const { return value == other.value; }
  size_t Hash() const { return static_cast<size_t>(value % 3); }
};

// As Python's, which who lets go of a plan takes.
std::recursive_mutex interpreter;
std::atomic<int> living{0};

struct Kept {
  explicit Kept(int64_t value) : value(value) { ++living; }
  Kept(const Kept&) = delete;
  ~Kept() {
    const std::lock_guard lock(interpreter);
    --living;
  }
  const int64_t value;
};
using Cache = AgedCache<Number, Kept>;

Cache::Value Of(int64_t value) { return std::make_shared<const Kept>(value); }

TEST(AgedCache, TheLeastRecentlyUsedGoesFirst) {
  Cache cache;
  cache.SetCapacity(2);
  for (int64_t value : {1, 2}) cache.Insert({value}, Of(value), 0);
  EXPECT_EQ(cache.Find({1})->value, 1);
  cache.Insert({3}, Of(3), 0);
  EXPECT_EQ(cache.Find({2}), nullptr);
  EXPECT_EQ(cache.Find({1})->value, 1);
  cache.SetCapacity(1);
  EXPECT_EQ(cache.Find({3}), nullptr);
  const Cache::Counts counts = cache.counts();
  EXPECT_EQ(counts.hits, 2);
  EXPECT_EQ(counts.misses, 2);
  EXPECT_EQ(counts.size, 1);
  EXPECT_EQ(counts.capacity, 1);
}

TEST(AgedCache, KeepsTheFirstOfTwoAndNoneOfAnotherAge) {
  Cache cache;
  const Cache::Value first = Of(1);
  EXPECT_EQ(cache.Insert({1}, first, cache.age()), first);
  EXPECT_EQ(cache.Insert({1}, Of(1), cache.age()), first);
  const int64_t age = cache.age();
  cache.Clear();
  const Cache::Value stale = Of(1);
  EXPECT_EQ(cache.Insert({1}, stale, age), stale);
  EXPECT_EQ(cache.Find({1}), nullptr);
}

// Ranks with the interpreter lock, and one that clears without it. TSAN sees it also where it does
// not happen that each waits for the other.
TEST(AgedCache, LetsGoWithoutItsLock) {
  {
    Cache cache;
    cache.SetCapacity(4);
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&cache, thread] {
        Dice dice(thread);
        for (int times = 0; times < 500; ++times) {
          std::unique_lock lock(interpreter, std::defer_lock);
          if (thread > 0) lock.lock();
          const Number key{dice.Below(8)};
          const int64_t age = cache.age();
          Cache::Value found = cache.Find(key);
          if (found == nullptr) found = cache.Insert(key, Of(key.value), age);
          EXPECT_EQ(found->value, key.value);
          if (thread == 0 && dice.OneIn(10)) cache.Clear();
          if (dice.OneIn(50)) cache.SetCapacity(static_cast<size_t>(dice.Below(6)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(living, 0);
}

CallModeChange InGraph(bool value) {
  CallModeChange change;
  change.in_graph = value;
  return change;
}

TEST(CallMode, ScopesEndInAnyOrder) {
  auto outer = std::make_unique<CallModeScope>(InGraph(true));
  CallModeChange change;
  change.one_buffer = true;
  auto inner = std::make_unique<CallModeScope>(change);
  EXPECT_TRUE(CallMode::OfThread().in_graph && CallMode::OfThread().one_buffer);
  outer.reset();
  EXPECT_FALSE(CallMode::OfThread().in_graph);
  EXPECT_TRUE(CallMode::OfThread().one_buffer);
  inner.reset();
  EXPECT_FALSE(CallMode::OfThread().one_buffer);
}

// As that of a generator, which another thread closes.
TEST(CallMode, IsOfItsThreadAndMayEndOnAnother) {
  auto scope = std::make_unique<CallModeScope>(InGraph(true));
  std::atomic<bool> ended{false};
  std::thread other([&] {
    EXPECT_FALSE(CallMode::OfThread().in_graph);
    const CallModeScope own(InGraph(true));
    scope.reset();
    EXPECT_TRUE(CallMode::OfThread().in_graph);
    ended = true;
  });
  while (!ended) CallMode::OfThread();
  EXPECT_FALSE(CallMode::OfThread().in_graph);
  other.join();
  const CallModeScope again(InGraph(false));
  EXPECT_FALSE(CallMode::OfThread().in_graph);
}

}  // namespace
}  // namespace xla_cc
