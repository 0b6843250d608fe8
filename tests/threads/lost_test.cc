// Calls that a rank has lost, by an error of its own or by one that it has not heard of yet.
#include <gtest/gtest.h>

#include <thread>

#include "tests/threads/calls.h"
#include "tests/threads/fakes.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/threads/meeting.h"
#include "torch_xla_cc/threads/world.h"

namespace xla_cc {
namespace {

struct Graph : HandOver {
  Graph() {
    run = [] { return std::string(); };
  }
};

// What a rank has lost to an error of its own its peers may have pending: its next call is not
// that. If all have lost as much, they go on.
TEST(Lost, ByAnErrorOfItsOwn) {
  for (const uint64_t group : {0u, 7u}) {
    for (const bool all : {false, true}) {
      const auto world = World::Begin(2, kLong);
      const Graph graph;
      OnThreads(2, [&](int rank) {
        if (rank == 0 || all) {
          EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(1), group}));
          world->Lost(rank);
        }
        EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(2), group}));
        const Failure failure = world->Meet(rank, Line(3), "program", graph);
        EXPECT_EQ(bool(failure), !all);
        if (all) return;
        EXPECT_TRUE(Has(failure.Text(), "its call 2, at line 2")) << failure.Text();
        EXPECT_TRUE(Has(failure.Text(), "its call 1, at line 2")) << failure.Text();
      });
      // They begin anew.
      OnThreads(2, [&](int rank) {
        const uint64_t next = group == 0 ? 0 : 8;
        EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(4), next}));
        EXPECT_FALSE(world->Meet(rank, Line(5), "program", graph));
      });
      world->End();
    }
  }
}

// So is what it has skipped, since it never came to be issued.
TEST(Lost, BeforeItWasIssued) {
  const auto world = World::Begin(2, kLong);
  const Graph graph;
  OnThreads(2, [&](int rank) {
    if (rank == 0) world->Skip(rank, 7);
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(1), 7}));
    EXPECT_TRUE(world->Meet(rank, Line(2), "program", graph));
  });
  world->End();
}

// What is dropped on purpose was never issued: one rank alone may trace.
TEST(Lost, NotWhatWasTraced) {
  const auto world = World::Begin(2, kLong);
  const Graph graph;
  EXPECT_FALSE(world->Issue(0, {AllReduceOf({}), Line(1)}));
  EXPECT_FALSE(world->Issue(0, {AllReduceOf({}), Line(1), 7}));
  world->Drop(0);
  OnThreads(2, [&](int rank) {
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(2)}));
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(2), 7}));
    EXPECT_FALSE(world->Meet(rank, Line(3), "program", graph));
  });
  world->End();
}

// Ranks that have begun torch.distributed later, and are not told, count anew with those who are.
TEST(Lost, WhoIsNotToldCountsAnew) {
  const auto world = World::Begin(3, kLong);
  const Graph graph;
  for (int rank = 0; rank < 3; ++rank) world->Join(GroupOf(rank, 3));
  OnThreads(3, [&](int rank) {
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(1)}));
    EXPECT_FALSE(world->Meet(rank, Line(2), "program", graph));
  });
  world->Join(GroupOf(2, 3));
  EXPECT_FALSE(world->Issue(2, {AllReduceOf({}), Line(3)}));
  OnThreads(2, [&](int rank) {
    const auto issued = AllReduceOf({{0, 1}, {2}}, rank == 0 ? "f32[2]" : "f32[3]");
    EXPECT_FALSE(world->Issue(rank, {issued, Line(4)}));
    EXPECT_TRUE(world->Meet(rank, Line(5), "program", graph));
  });
  OnThreads(3, [&](int rank) {
    if (rank != 2) {
      EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(3)}));
    }
    const Failure failure = world->Meet(rank, Line(6), "program", graph);
    EXPECT_FALSE(failure) << rank << failure.Text();
  });
  world->End();
}

// What all are told, and a rank hears of where its group meets, is lost once: those who have heard
// of it, and try again, do not hear of it once more.
TEST(Lost, OnceWhoeverHearsOfIt) {
  const auto world = World::Begin(3, kLong);
  const Graph graph;
  std::vector<std::shared_ptr<Meeting>> meetings;
  for (int rank = 0; rank < 3; ++rank) meetings.push_back(world->Join(GroupOf(rank, 3)));
  EXPECT_FALSE(world->Issue(2, {AllReduceOf({}), Line(1)}));
  OnThreads(2, [&](int rank) {
    const auto issued = AllReduceOf({{0, 1}, {2}}, rank == 0 ? "f32[2]" : "f32[3]");
    EXPECT_FALSE(world->Issue(rank, {issued, Line(2)}));
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(2), meetings[0]->id()}));
    EXPECT_TRUE(world->Meet(rank, Line(3), "program", graph));
  });
  std::thread hears([&] {
    while (!world->HasPending(0) || !world->HasPending(1)) std::this_thread::yield();
    EXPECT_NE(Thrown<CollectiveMismatch>(
                  [&] { meetings[2]->Announce(GroupOf(2, 3), CallOf("all_reduce()", 1, 2)); }),
              "nothing was thrown");
    EXPECT_FALSE(world->Issue(2, {AllReduceOf({}), Line(4)}));
    EXPECT_FALSE(world->Meet(2, Line(5), "program", graph));
  });
  OnThreads(2, [&](int rank) {
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(4)}));
    const Failure failure = world->Meet(rank, Line(5), "program", graph);
    EXPECT_FALSE(failure) << rank << failure.Text();
  });
  hears.join();
  world->End();
}

// All wait until the last has been told: one that waits in a group is told there, which breaks.
TEST(Lost, WhoWaitsInAGroupIsTold) {
  for (const bool receives : {false, true}) {
    const auto world = World::Begin(3, kLong);
    const Graph graph;
    const RankGroup group{"h", {1, 2}, {1, 2}, 3, 1};
    const auto meeting = world->Join(group);
    std::thread waits([&] {
      world->Enter(2);
      const CallPtr call = CallOf("barrier()", 1, 2);
      const std::string why = Thrown<CollectiveMismatch>([&] {
        if (receives) {
          meeting->Await(group, meeting->Ask(group, 0, 0, call), kLong);
        } else {
          meeting->Announce(group, call);
          meeting->Meet(group, call);
        }
      });
      EXPECT_TRUE(Has(why, "f32[3]")) << why;
      EXPECT_FALSE(world->Issue(2, {AllReduceOf({}), Line(3)}));
      EXPECT_FALSE(world->Meet(2, Line(4), "program", graph));
    });
    OnThreads(2, [&](int rank) {
      const auto issued = AllReduceOf({{0, 1}, {2}}, rank == 0 ? "f32[2]" : "f32[3]");
      EXPECT_FALSE(world->Issue(rank, {issued, Line(1)}));
      EXPECT_TRUE(world->Meet(rank, Line(2), "program", graph));
      EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(3)}));
      EXPECT_FALSE(world->Meet(rank, Line(4), "program", graph));
    });
    waits.join();
    EXPECT_TRUE(world->WhyBroken(meeting->id()));
    world->End();
  }
}

// Nor are those of whom one is not told, and has lost its calls with one who is.
TEST(Lost, WhoIsNotToldAndLosesSomething) {
  const auto world = World::Begin(4, kLong);
  const Graph graph;
  for (int rank = 0; rank < 4; ++rank) world->Join(GroupOf(rank, 4));
  world->Join(GroupOf(2, 4));
  const auto of_two = [] { return AllReduceOf({{0, 1}, {2, 3}}); };
  EXPECT_FALSE(world->Issue(2, {of_two(), Line(1)}));
  EXPECT_FALSE(world->Issue(3, {of_two(), Line(1)}));
  OnThreads(2, [&](int rank) {
    const auto issued = AllReduceOf({{0, 1}, {2, 3}}, rank == 0 ? "f32[2]" : "f32[3]");
    EXPECT_FALSE(world->Issue(rank, {issued, Line(2)}));
    EXPECT_TRUE(world->Meet(rank, Line(3), "program", graph));
  });
  for (int rank : {3, 2}) EXPECT_TRUE(world->Issue(rank, {of_two(), Line(4)})) << rank;
  OnThreads(4, [&](int rank) {
    EXPECT_FALSE(world->Issue(rank, {of_two(), Line(5)}));
    const Failure failure = world->Meet(rank, Line(6), "program", graph);
    EXPECT_FALSE(failure) << rank << failure.Text();
  });
  world->End();
}

// Who has begun torch.distributed anew is told of a failure that is not older, of calls of no
// group.
TEST(Lost, WhoBeginsAnewAfterThoseWhoFailed) {
  for (const bool older : {false, true}) {
    const auto world = World::Begin(3, kLong);
    const Graph graph;
    for (int rank = 0; rank < 3; ++rank) world->Join(GroupOf(rank, 3));
    if (!older) {
      for (int rank = 1; rank < 3; ++rank) world->Join(GroupOf(rank, 3));
    }
    OnThreads(3, [&](int rank) {
      if (rank == 0) return;
      const auto issued = AllReduceOf({{0}, {1, 2}}, rank == 1 ? "f32[2]" : "f32[3]");
      EXPECT_FALSE(world->Issue(rank, {issued, Line(1)}));
      EXPECT_TRUE(world->Meet(rank, Line(2), "program", graph));
    });
    world->Join(GroupOf(0, 3));
    EXPECT_EQ(bool(world->Issue(0, {AllReduceOf({}), Line(3)})), !older);
    world->End();
  }
}

// A call that is not announced, and waits in the graph of its rank, is not what a barrier waits
// for.
TEST(Lost, WhoWaitsInABarrierForOneInItsGraph) {
  const auto world = World::Begin(2, kLong);
  const Graph graph;
  const auto meeting = world->Join(GroupOf(0));
  world->Join(GroupOf(1));
  OnThreads(2, [&](int rank) {
    world->Enter(rank);
    if (rank == 0) {
      const CallPtr barrier = CallOf("barrier()", 1, 0);
      meeting->Announce(GroupOf(0), barrier);
      const std::string why =
          Thrown<CollectiveMismatch>([&] { meeting->Meet(GroupOf(0), barrier); });
      EXPECT_TRUE(Has(why, "barrier() at line 0")) << why;
      EXPECT_TRUE(Has(why, "rank 1 runs its graph with")) << why;
      return;
    }
    EXPECT_FALSE(world->Issue(1, {AllReduceOf({}), Line(7), meeting->id()}));
    const Failure failure = world->Meet(1, Line(8), "program", graph);
    EXPECT_TRUE(Has(failure.Text(), "barrier()")) << failure.Text();
  });
  world->End();
}

// The last that has not been told may be one that returns.
TEST(Lost, WhoReturnsKeepsNobody) {
  const auto world = World::Begin(3, kLong);
  const Graph graph;
  OnThreads(3, [&](int rank) {
    const auto of_two = [](const std::string& type) { return AllReduceOf({{0, 1}, {2}}, type); };
    if (rank == 2) {
      while (!world->HasPending(0) || !world->HasPending(1)) std::this_thread::yield();
      std::this_thread::sleep_for(kShort);  // until they try again
      return world->Finish(2, Line(9));
    }
    EXPECT_FALSE(world->Issue(rank, {of_two(rank == 0 ? "f32[2]" : "f32[3]"), Line(1)}));
    EXPECT_TRUE(world->Meet(rank, Line(2), "program", graph));
    EXPECT_FALSE(world->Issue(rank, {of_two("f32[2]"), Line(3)}));
    EXPECT_FALSE(world->Meet(rank, Line(4), "program", graph));
  });
  world->End();
}

// A launch may make groups for hours.
TEST(Lost, GroupsThatHaveEndedAreForgotten) {
  const auto world = World::Begin(2, kLong);
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 500; ++i) {
    const std::string name = std::to_string(i);
    const auto meeting = world->Join({name, {0, 1}, {0, 1}, 2, 0});
    world->Join({name, {0, 1}, {0, 1}, 2, 1});
    numbers.push_back(meeting->id());
    world->Disagree(0, Because("it differs"), meeting->id());
    EXPECT_TRUE(world->WhyBroken(meeting->id()));
  }
  size_t known = 0;
  for (const uint64_t number : numbers) {
    known += bool(world->WhyBroken(number)) || !world->MembersOf(number).second.empty();
  }
  EXPECT_LT(known, 140u);
  EXPECT_GT(known, 0u);
  world->End();
}

}  // namespace
}  // namespace xla_cc
