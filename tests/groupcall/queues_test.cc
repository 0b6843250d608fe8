// The queue of jobs, the flight recorder, and the health of a group.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/groupcall/flight_recorder.h"
#include "torch_xla_cc/groupcall/health.h"
#include "torch_xla_cc/groupcall/job_queue.h"

namespace xla_cc {
namespace {

TEST(JobQueue, OneAfterTheOtherInTheirOrder) {
  std::vector<int> done;
  {
    JobQueue queue;
    for (int i = 0; i < 500; ++i) {
      const auto job = [&done, i] { done.push_back(i); };
      if (i % 3 == 0) {
        queue.RunOrAdd(job);
      } else {
        queue.Add(job);
      }
    }
  }  // after all that was added
  ASSERT_EQ(done.size(), 500u);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(done[i], i);
}

TEST(JobQueue, RunsHereOnlyWhatHasNobodyBefore) {
  JobQueue queue;
  std::thread::id ran;
  queue.RunOrAdd([&] { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
  std::atomic<bool> go{false};
  std::atomic<bool> ended{false};
  queue.Add([&] {
    while (!go) std::this_thread::yield();
  });
  queue.RunOrAdd([&] {
    EXPECT_TRUE(go);
    ended = true;
  });
  go = true;
  while (!ended) std::this_thread::yield();
}

TEST(JobQueue, GoesOnAfterAnError) {
  std::vector<int> done;
  {
    JobQueue queue;
    EXPECT_THROW(queue.RunOrAdd([] { throw std::runtime_error("wrong"); }), std::runtime_error);
    queue.RunOrAdd([&] { done.push_back(1); });
    queue.Add([&] { done.push_back(2); });
  }
  EXPECT_EQ(done, (std::vector<int>{1, 2}));
}

TEST(JobQueue, OfSeveralThreads) {
  int count = 0;  // guarded by the queue: one job at a time
  {
    JobQueue queue;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) queue.RunOrAdd([&] { ++count; });
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(count, 800);
}

CallPtr CallOf(int64_t rank, uint64_t number) {
  auto call = std::make_shared<GroupCall>();
  call->rank = rank;
  call->number = number;
  return call;
}

TEST(Recorder, KeepsTheLastOfEachRank) {
  Recorder recorder;
  recorder.SetCapacity(3);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&recorder, rank] {
      for (uint64_t number = 1; number <= 100; ++number) recorder.Add(CallOf(rank, number));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int64_t rank = 0; rank < 4; ++rank) {
    const std::vector<CallPtr> calls = recorder.Of(rank);
    ASSERT_EQ(calls.size(), 3u);
    EXPECT_EQ(calls[0]->number, 98u);
    EXPECT_EQ(calls[2]->number, 100u);
  }
  EXPECT_TRUE(recorder.Of(7).empty());
  EXPECT_TRUE(recorder.Of(-1).empty());
  recorder.Clear();
  EXPECT_TRUE(recorder.Of(0).empty());
}

TEST(GroupCall, EndsItsEventOnce) {
  GroupCall call;
  int ended = 0;
  call.end_event = [&] { ++ended; };
  call.End(GroupCall::State::kDone);
  call.End(GroupCall::State::kFailed);
  EXPECT_EQ(ended, 1);
  EXPECT_STREQ(StateName(call.state), "failed");
  EXPECT_GT(call.ended_us, 0);
}

TEST(Health, TheFirstIsKeptWithItsKind) {
  int dumps = 0;
  Recorder::Get().SetDumper([&](int64_t rank, const std::string& why) {
    ++dumps;
    EXPECT_EQ(rank, 5);
    EXPECT_EQ(why, "late");
  });
  Health health(5);
  health.ThrowIfBroken();
  health.Break(std::make_exception_ptr(CollectiveTimeout("late")));
  health.Break(std::make_exception_ptr(CollectiveMismatch("different")));
  EXPECT_EQ(dumps, 1);
  try {
    health.ThrowIfBroken();
    FAIL();
  } catch (const CollectiveTimeout& error) {
    EXPECT_NE(std::string(error.what()).find("since a call of it has failed: late"),
              std::string::npos);
  }
  Recorder::Get().SetDumper(nullptr);
}

}  // namespace
}  // namespace xla_cc
