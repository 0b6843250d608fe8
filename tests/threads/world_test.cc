#include "torch_xla_cc/threads/world.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "tests/threads/fakes.h"
#include "torch_xla_cc/threads/meeting.h"

namespace xla_cc {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60'000};

std::shared_ptr<const Lowered> World4() { return AllReduceOf({}); }

// A graph of a rank, which says how often it was run.
struct FakeGraph {
  HandOver hand_over;
  std::atomic<int> runs{0};
  std::string error;
  bool compiles = false;

  explicit FakeGraph(std::string fails = "") : error(std::move(fails)) {
    hand_over.run = [this]() -> std::string {
      if (!error.empty()) return error;
      if (compiles && !AtGate()) return "turned away";
      ++runs;
      return "";
    };
    hand_over.wait = [] {};
    hand_over.compiled = true;
  }
};

// Each rank on a thread of its own.
void OnThreads(int64_t ranks, const std::function<void(int64_t)>& f) {
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) threads.emplace_back(f, rank);
  for (std::thread& thread : threads) thread.join();
}

TEST(World, AllRunTheirStepsTogether) {
  const auto world = World::Begin(4, kLong);
  std::atomic<int> runs{0};
  std::atomic<int> behind{0};
  OnThreads(4, [&](int64_t rank) {
    world->Enter(rank);
    for (int step = 0; step < 200; ++step) {
      FakeGraph run;
      EXPECT_FALSE(world->Issue(rank, {World4(), Line(1)}));
      EXPECT_TRUE(world->HasPending(rank));
      EXPECT_FALSE(world->Meet(rank, Line(2), "program", run.hand_over));
      EXPECT_FALSE(world->HasPending(rank));
      EXPECT_TRUE(world->IsIdle(rank));
      runs += run.runs;
      if (run.runs != 1) ++behind;
    }
    world->Finish(rank, Line(3));
  });
  EXPECT_EQ(runs, 800);
  EXPECT_EQ(behind, 0);
  world->End();
}

TEST(World, RanksOfDifferentPrograms) {
  const auto world = World::Begin(3, kLong);
  OnThreads(3, [&](int64_t rank) {
    for (int step = 0; step < 100; ++step) {
      FakeGraph run;
      run.hand_over.wait = nullptr;
      EXPECT_FALSE(world->Issue(rank, {World4(), Line(1)}));
      const std::string program = rank == 1 ? "one" : "another";
      EXPECT_FALSE(world->Meet(rank, Line(2), program, run.hand_over));
      EXPECT_EQ(run.runs, 1);
      EXPECT_FALSE(world->IsIdle(rank));
    }
  });
  world->End();
}

// Another thread of the rank, in a receive, may hear of it before the one that waits here wakes.
TEST(World, ARankHearsWhatAnotherThreadOfItHasHeard) {
  for (int i = 0; i < 100; ++i) {
    const auto world = World::Begin(2, milliseconds(20'000));
    const auto meeting = world->Join({"g", {0, 1}, {0, 1}, 2, 0});
    EXPECT_FALSE(world->Issue(0, {AllReduceOf({}), Line(1), meeting->id()}));
    std::thread waits([&] {
      world->Enter(1);
      FakeGraph run;
      EXPECT_FALSE(world->Issue(1, {AllReduceOf({}), Line(2), meeting->id()}));
      EXPECT_EQ(world->Meet(1, Line(3), "program", run.hand_over).phrases.size(), 1u);
      EXPECT_EQ(run.runs, 0);
    });
    while (!world->HasPending(1)) std::this_thread::yield();
    if (i % 2 == 0) std::this_thread::sleep_for(milliseconds(2));
    Failure differs = Because("it differs");
    differs.GiveNumber();
    world->Disagree(0, differs, meeting->id());
    if (i % 2 == 0) world->Told(1, differs);
    waits.join();
    world->End();
  }
}

TEST(World, GroupsDoNotWaitForEachOther) {
  const auto world = World::Begin(4, kLong);
  const auto pairs = AllReduceOf({{0, 1}, {2, 3}});
  OnThreads(2, [&](int64_t rank) {  // 2 and 3 never come
    FakeGraph run;
    EXPECT_FALSE(world->Issue(rank, {pairs, Line(1)}));
    EXPECT_FALSE(world->Meet(rank, Line(2), "program", run.hand_over));
    EXPECT_EQ(run.runs, 1);
  });
  world->End();
}

TEST(World, ProgramsThatCompileStartTogether) {
  const int before = GatesMade();
  const auto world = World::Begin(3, kLong);
  OnThreads(3, [&](int64_t rank) {
    FakeGraph run;
    run.hand_over.compiled = false;
    run.compiles = true;
    EXPECT_FALSE(world->Issue(rank, {World4(), Line(1)}));
    EXPECT_FALSE(world->Meet(rank, Line(2), std::to_string(rank), run.hand_over));
    EXPECT_EQ(run.runs, 1);
  });
  EXPECT_EQ(GatesMade() - before, 3);
  world->End();
}

TEST(World, OneThatDoesNotCompileStopsAllBeforeAnyRuns) {
  const auto world = World::Begin(3, kLong);
  std::atomic<int> runs{0};
  OnThreads(3, [&](int64_t rank) {
    FakeGraph run(rank == 1 ? "no memory" : "");
    run.hand_over.compiled = false;
    run.compiles = true;
    EXPECT_FALSE(world->Issue(rank, {World4(), Line(1)}));
    const Failure failure = world->Meet(rank, Line(2), std::to_string(rank), run.hand_over);
    EXPECT_EQ(failure.Text(), "rank 1 could not run its graph: no memory");
    runs += run.runs;
  });
  EXPECT_EQ(runs, 0);
  world->End();
}

TEST(World, CallsThatDifferAreToldOnceToEachAndTheyMayGoOn) {
  const auto world = World::Begin(2, kLong);
  OnThreads(2, [&](int64_t rank) {
    for (int round = 0; round < 20; ++round) {
      FakeGraph run;
      EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}, std::to_string(rank)), Line(1)}));
      const Failure failure = world->Meet(rank, Line(2), "program", run.hand_over);
      EXPECT_EQ(failure.kind, Failure::Kind::kMismatch);
      EXPECT_EQ(run.runs, 0);
      EXPECT_EQ(world->Losses(rank), 2 * round + 1);
      FakeGraph again;
      Failure told;
      while ((told = world->Issue(rank, {World4(), Line(3)}))) {
      }
      EXPECT_FALSE(world->Meet(rank, Line(4), "program", again.hand_over));
      EXPECT_EQ(again.runs, 1);
      world->Drop(rank);
    }
  });
  world->End();
}

TEST(World, ARankThatFailsStopsTheOthers) {
  const auto world = World::Begin(3, kLong);
  OnThreads(3, [&](int64_t rank) {
    if (rank == 2) return world->Fail(rank, "rank 2 has failed: a bug");
    FakeGraph run;
    if (!world->Issue(rank, {World4(), Line(1)})) {
      const Failure failure = world->Meet(rank, Line(2), "program", run.hand_over);
      EXPECT_EQ(failure.Text(), "rank 2 has failed: a bug");
    }
    EXPECT_EQ(world->Issue(rank, {World4(), Line(1)}).Text(), "rank 2 has failed: a bug");
    EXPECT_EQ(run.runs, 0);
  });
  world->End();
}

TEST(World, TheTimeLimit) {
  for (const auto& [of_rank, group] : {std::pair{false, 0}, {true, 0}, {false, 7}, {true, 7}}) {
    const auto world = World::Begin(2, of_rank ? kLong : milliseconds(30));
    if (of_rank) world->SetLimit(0, milliseconds(30));
    FakeGraph run;
    const uint64_t of = group;
    EXPECT_FALSE(world->Issue(0, {World4(), Line(1), of}));
    const Failure failure = world->Meet(0, Line(2), "program", run.hand_over);
    EXPECT_EQ(failure.kind, Failure::Kind::kTimeout);
    EXPECT_NE(failure.Text().find(of_rank ? "the time limit of its group" : "of launch"),
              std::string::npos)
        << failure.Text();
    // The other is told when it comes: to its group, if that was to run.
    EXPECT_EQ(world->Issue(1, {World4(), Line(1)}).kind,
              group == 0 ? Failure::Kind::kTimeout : Failure::Kind::kOther);
    EXPECT_EQ(world->Issue(1, {World4(), Line(1), 7}).kind,
              group == 7 ? Failure::Kind::kTimeout : Failure::Kind::kOther);
    EXPECT_EQ(run.runs, 0);
    world->End();
  }
}

TEST(World, AbortIsFinal) {
  const auto world = World::Begin(2, kLong);
  world->Abort("stopped by ctrl-C");
  for (int times = 0; times < 3; ++times) {
    EXPECT_EQ(world->Issue(0, {World4(), Line(1)}).Text(), "stopped by ctrl-C");
  }
  world->End();
}

// It is in a batch: another rank hands its graph over, or waits for what it has to hand over.
TEST(World, ItsEndLeavesNobodyBehindWhoMayGoOn) {
  for (const bool compiles : {false, true}) {
    const auto world = World::Begin(2, kLong);
    std::atomic<int> runs{0};
    std::atomic<bool> handed_over{false};
    const auto rank = [&](int64_t rank, FakeGraph& graph) {
      EXPECT_FALSE(world->Issue(rank, {World4(), Line(1)}));
      EXPECT_EQ(world->Meet(rank, Line(2), "program", graph.hand_over).Text(),
                "the ranks were stopped");
      EXPECT_TRUE(handed_over);  // else its graph was gone
      runs += graph.runs;
    };
    FakeGraph first;
    FakeGraph second;
    for (FakeGraph* graph : {&first, &second}) {
      graph->compiles = compiles;
      graph->hand_over.compiled = !compiles;
    }
    // The last to come hands over both, its own second, and the world ends meanwhile.
    const auto run = first.hand_over.run;
    first.hand_over.run = [&, run] {
      world->End();
      std::this_thread::sleep_for(milliseconds(30));
      handed_over = true;
      return run();
    };
    std::thread waits([&] { rank(0, first); });
    while (!world->HasPending(0)) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(10));
    rank(1, second);
    waits.join();
    EXPECT_EQ(runs, 2);
  }
}

TEST(World, ItsEndWakesWhoWaits) {
  const auto world = World::Begin(2, kLong);
  std::thread waits([&] {
    FakeGraph run;
    EXPECT_FALSE(world->Issue(0, {World4(), Line(1)}));
    EXPECT_EQ(world->Meet(0, Line(2), "program", run.hand_over).Text(), "the ranks were stopped");
    EXPECT_EQ(run.runs, 0);
  });
  while (!world->HasPending(0)) std::this_thread::yield();
  world->End();
  waits.join();
}

// A rank with helpers that read: neither comes into what the other does.
TEST(World, TheThreadsOfARankTakeTurns) {
  constexpr int kSteps = 200;
  const auto world = World::Begin(2, kLong);
  std::atomic<bool> stop{false};
  std::atomic<int> inside[2] = {};
  std::atomic<int> read{0};
  const auto in_turn = [&](int64_t rank, const std::function<void()>& f) {
    const auto turn = world->TakeTurn(rank, true);
    const auto inner = world->TakeTurn(rank, false);  // its own again
    EXPECT_TRUE(inner);
    EXPECT_EQ(++inside[rank], 1);
    f();
    --inside[rank];
  };
  std::vector<std::thread> helpers;
  for (int64_t rank : {0, 0, 1}) {
    helpers.emplace_back([&, rank] {
      while (!stop) {
        in_turn(rank, [&] {
          EXPECT_FALSE(world->MayIssue(rank) && world->HasPending(rank));
          ++read;
        });
        std::this_thread::yield();
      }
    });
  }
  OnThreads(2, [&](int64_t rank) {
    world->Enter(rank);
    for (int step = 0; step < kSteps; ++step) {
      in_turn(rank, [&] { EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(1)})); });
      in_turn(rank, [&] {
        FakeGraph run;
        EXPECT_FALSE(world->Meet(rank, Line(2), "program", run.hand_over));
      });
    }
  });
  stop = true;
  for (std::thread& helper : helpers) helper.join();
  EXPECT_GT(read, 0);
  world->End();
}

TEST(World, CollectivesAreForTheRanksOwnThread) {
  const auto world = World::Begin(2, kLong);
  EXPECT_TRUE(world->MayIssue(0));  // nobody has entered
  std::thread own([&] {
    world->Enter(0);
    EXPECT_TRUE(world->MayIssue(0));
    EXPECT_FALSE(world->RequireOwnThread(0, "all_reduce()", Line(1)));
  });
  own.join();
  EXPECT_FALSE(world->MayIssue(0));
  EXPECT_TRUE(world->MayIssue(1));
  const std::string said = world->RequireOwnThread(0, "all_reduce()", Line(1)).Text();
  EXPECT_EQ(said.find("all_reduce() at line 1: this is not the thread of rank 0."), 0u) << said;
  world->End();
  EXPECT_TRUE(world->MayIssue(0));  // which is an error of its own
}

TEST(World, ItsEndEndsTheWaitingForATurn) {
  const auto world = World::Begin(1, kLong);
  const auto turn = world->TakeTurn(0, true);
  std::thread waits([&] {
    EXPECT_FALSE(world->TakeTurn(0, false));
    EXPECT_TRUE(world->TakeTurn(0, true));
    EXPECT_TRUE(world->Issue(0, {World4(), Line(1)}));
  });
  std::this_thread::sleep_for(milliseconds(20));
  world->End();
  waits.join();
}

TEST(World, AThreadThatOutlivesItsWorldIsInNoOther) {
  std::atomic<int> step{0};
  const auto until = [&](int value) {
    while (step < value) std::this_thread::yield();
  };
  auto first = World::Begin(1, kLong);
  std::thread late([&] {
    first->Enter(0);
    EXPECT_FALSE(World::Outlived());
    step = 1;
    until(2);  // that world has ended, and another runs
    EXPECT_EQ(World::OfThread(), first);
    EXPECT_TRUE(World::Outlived());
    const Failure failure = first->Issue(0, {World4(), Line(1)});
    EXPECT_NE(failure.Text().find("a rank whose launch has ended"), std::string::npos)
        << failure.Text();
    step = 3;
  });
  until(1);
  first->End();
  const auto second = World::Begin(1, kLong);
  step = 2;
  until(3);
  late.join();
  EXPECT_FALSE(second->HasPending(0));
  EXPECT_EQ(World::OfThread(), second);
  second->End();
  EXPECT_EQ(World::OfThread(), nullptr);
  EXPECT_NE(World::Outside().Text().find("outside of torch_xla_cc.launch"), std::string::npos);
}

}  // namespace
}  // namespace xla_cc
