// Events: who waits is woken once, whoever comes first.
#include "pod/event.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace xla_cc::pod {
namespace {

const Failure kFailure(abi::Code::kUnavailable, "it has gone");

TEST(Occurrence, WakesWhoWaits) {
  Occurrence event;
  std::thread other([&] { event.Happen(kFailure); });
  const auto outcome = event.Wait();
  other.join();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->message(), "it has gone");
  EXPECT_TRUE(event.HasHappened());
}

TEST(Occurrence, HappensOnce) {
  Occurrence event;
  event.Happen({});
  event.Happen(kFailure);
  EXPECT_FALSE(event.Wait().has_value());
}

TEST(Occurrence, CallsAtOnceWhatComesLate) {
  const auto event = Occurrence::Already({});
  std::thread::id thread;
  event->Then([&](const Occurrence::Outcome&) { thread = std::this_thread::get_id(); });
  EXPECT_EQ(thread, std::this_thread::get_id());
}

TEST(Occurrence, EveryCallerIsCalledOnce) {
  for (int round = 0; round < 50; ++round) {
    Occurrence event;
    constexpr int kCallers = 20;
    std::atomic<int> calls = 0;
    std::promise<void> all;
    std::thread callers([&] {
      for (int i = 0; i < kCallers; ++i) {
        event.Then([&](const Occurrence::Outcome&) {
          if (++calls == kCallers) all.set_value();
        });
      }
    });
    event.Happen({});
    callers.join();
    all.get_future().get();
    EXPECT_EQ(calls, kCallers);
  }
}

// The thread that reads answers makes events happen, and callbacks wait for other answers.
TEST(Occurrence, ACallbackMayWaitForWhatHappensNext) {
  Occurrence first, second;
  std::promise<void> done;
  first.Then([&](const Occurrence::Outcome&) {
    second.Wait();
    done.set_value();
  });
  first.Happen({});
  second.Happen({});
  done.get_future().get();
}

}  // namespace
}  // namespace xla_cc::pod
