// What ranks are told of failures: once of each, and nothing of what they have left.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/threads/calls.h"
#include "tests/threads/fakes.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/threads/meeting.h"
#include "torch_xla_cc/threads/world.h"

namespace xla_cc {
namespace {

// Of calls that differ all ranks are told, and a group in which one fails for it breaks: who comes
// late, and hears of it there, has been told, and hears no more of it in its next call.
TEST(Told, WhoHearsOfItInAGroupHasBeenTold) {
  const auto world = World::Begin(3, kLong);
  const auto join = [&](int rank) { return world->Join(GroupOf(rank, 3)); };
  const std::vector<std::shared_ptr<Meeting>> meetings{join(0), join(1), join(2)};
  OnThreads(2, [&](int rank) {
    HandOver graph;
    graph.run = [] { return std::string("ran"); };
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}, rank == 0 ? "f32[2]" : "f32[3]"), Line(1)}));
    const Failure failure = world->Meet(rank, Line(2), "program", graph);
    EXPECT_TRUE(failure);
    if (rank == 0) meetings[0]->Fail(GroupOf(0, 3), failure);
  });
  // Of the failure, not of the group: that of rank 1 may have come before.
  EXPECT_NE(Thrown<RanksDisagree>(
                [&] { meetings[2]->Announce(GroupOf(2, 3), CallOf("all_gather", 1, 2)); }),
            "nothing was thrown");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(3)})) << rank;
    world->Drop(rank);
  }
  world->End();
}

// A rank that has begun torch.distributed anew is not told what went wrong in what it has left,
// whether that was found before or after.
TEST(Told, WhoBeginsAnewIsNotToldOfWhatItHasLeft) {
  for (const bool early : {true, false}) {
    const auto world = World::Begin(3, kLong);
    const auto join = [&](int rank) { return world->Join(GroupOf(rank, 3)); };
    for (int rank = 0; rank < 3; ++rank) join(rank);
    if (early) join(2);
    OnThreads(2, [&](int rank) {
      HandOver graph;
      graph.run = [] { return std::string("ran"); };
      const auto issued = AllReduceOf({{0, 1}, {2}}, rank == 0 ? "f32[2]" : "f32[3]");
      EXPECT_FALSE(world->Issue(rank, {issued, Line(1)}));
      EXPECT_TRUE(world->Meet(rank, Line(2), "program", graph));
    });
    // What it had pending when it left is to run with nothing of the new one.
    const int64_t lost = world->Losses(2);
    if (!early) join(2);
    EXPECT_EQ(world->Losses(2) - lost, early ? 0 : 1);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(3)})) << rank << early;
    }
    world->End();
  }
}

// Of calls of torch.distributed the ranks of their groups are told; the others have lost nothing.
TEST(Told, OfCallsOfGroupsTheirRanksAlone) {
  const auto world = World::Begin(3, kLong);
  HandOver graph;
  graph.run = [] { return std::string(); };
  OnThreads(2, [&](int rank) {
    const uint64_t group = 7 + rank;  // two of the same ranks
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({{0, 1}, {2}}), Line(1), group}));
    EXPECT_TRUE(world->Meet(rank, Line(2), "program", graph));
  });
  OnThreads(3, [&](int rank) {
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(3), 9})) << rank;
    EXPECT_FALSE(world->Meet(rank, Line(4), "program", graph)) << rank;
  });
  // A group that has broken stays so, and who comes to it loses what it has pending: so have its
  // peers there, and that group breaks, too.
  EXPECT_FALSE(world->Issue(0, {AllReduceOf({}), Line(5), 9}));
  EXPECT_TRUE(world->Issue(0, {AllReduceOf({{0, 1}, {2}}), Line(6), 7}));
  EXPECT_FALSE(world->HasPending(0));
  EXPECT_TRUE(world->Issue(1, {AllReduceOf({}), Line(5), 9}));
  EXPECT_TRUE(world->Issue(2, {AllReduceOf({}), Line(5), 9}));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(8), 10})) << rank;
  }
  world->End();
}

// So is who loses a call with one of those, and so on: in a group, whose next call would be taken
// for that; or, of no group, all ranks, but for who has begun anew.
TEST(Told, WhoLosesACallWithOneWhoLosesOne) {
  for (const uint64_t group : {9u, 0u}) {
    for (const bool anew : {false, true}) {
      const auto world = World::Begin(4, kLong);
      HandOver graph;
      graph.run = [] { return std::string(); };
      for (int rank = 0; rank < 4; ++rank) world->Join(GroupOf(rank, 4));
      if (anew) world->Join(GroupOf(3, 4));
      const auto of_three = AllReduceOf({{0, 1, 2}, {3}});
      const auto of_two = AllReduceOf({{0}, {1}, {2, 3}});
      EXPECT_FALSE(world->Issue(2, {of_two, Line(1), group}));
      OnThreads(2, [&](int rank) {
        EXPECT_FALSE(world->Issue(rank, {of_three, Line(2), 7u + rank}));
        EXPECT_TRUE(world->Meet(rank, Line(3), "program", graph));
      });
      EXPECT_FALSE(world->Issue(2, {of_two, Line(4), group}));  // it has lost nothing yet
      EXPECT_TRUE(world->Issue(2, {of_three, Line(5), 7}));
      EXPECT_EQ(bool(world->Issue(3, {of_two, Line(4), group})), group == 9 || !anew)
          << group << anew;
      EXPECT_EQ(bool(world->Issue(3, {of_two, Line(4), group})), group == 9) << group << anew;
      EXPECT_EQ(bool(world->Issue(0, {AllReduceOf({}), Line(6), 10})), group == 0);
      world->End();
    }
  }
}

// What two calls wait with is lost with one of them, however far apart: 3 shares nothing with those
// that differ.
TEST(Told, WhoWaitsWithAPeerOfAPeer) {
  const auto world = World::Begin(4, kLong);
  HandOver graph;
  graph.run = [] { return std::string(); };
  OnThreads(4, [&](int rank) {
    const auto issue = [&](const std::vector<std::vector<int64_t>>& groups, uint64_t group) {
      EXPECT_FALSE(world->Issue(rank, {AllReduceOf(groups), Line(1), group})) << rank;
    };
    if (rank == 1 || rank == 2) issue({{1, 2}}, 8);
    if (rank == 2 || rank == 3) issue({{2, 3}}, 9);
    if (rank == 0) {
      while (!world->HasPending(1) || !world->HasPending(2) || !world->HasPending(3)) {
        std::this_thread::yield();
      }
      std::this_thread::sleep_for(kShort);  // until they wait, but 1
    }
    if (rank == 0 || rank == 1) issue({{0, 1}}, rank == 0 ? 6 : 7);
    const Failure failure = world->Meet(rank, Line(2), "program", graph);
    EXPECT_TRUE(Has(failure.Text(), "different groups")) << rank << failure.Text();
  });
  world->End();
}

// Who has not come to the group that fails keeps what it calls elsewhere, and is told when it
// comes.
TEST(Told, WhoComesToTheGroupLater) {
  const auto world = World::Begin(3, kLong);
  HandOver graph;
  graph.run = [] { return std::string(); };
  const auto alone = AllReduceOf({{0}, {1}, {2}});
  EXPECT_FALSE(world->Issue(2, {alone, Line(1), 5}));
  OnThreads(2, [&](int rank) {
    const auto issued = AllReduceOf({}, rank == 0 ? "f32[2]" : "f32[3]");
    EXPECT_FALSE(world->Issue(rank, {issued, Line(2), 7}));
    EXPECT_TRUE(world->Meet(rank, Line(3), "program", graph));
  });
  EXPECT_FALSE(world->Meet(2, Line(4), "program", graph));
  EXPECT_FALSE(world->Issue(2, {AllReduceOf({}), Line(5), 8}));  // another of the same ranks
  EXPECT_TRUE(world->Issue(2, {AllReduceOf({}), Line(6), 7}));
  EXPECT_TRUE(world->Issue(0, {AllReduceOf({}), Line(5), 8}));  // of which 2 has lost that
  EXPECT_FALSE(world->HasPending(2));
  for (int rank : {0, 1, 2}) {  // its calls would be taken for those that are lost
    EXPECT_TRUE(world->Issue(rank, {AllReduceOf({}), Line(7), 7})) << rank;
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(7), 9})) << rank;
  }
  world->End();
}

// Who finds a failure itself, and so has lost all that it had pending, hears of no other by which
// it was lost as well.
TEST(Told, WhoFindsOneItselfHasHeardOfTheOther) {
  const auto world = World::Begin(3, kLong);
  const auto join = [&](int rank) { return world->Join(GroupOf(rank, 3)); };
  const std::vector<std::shared_ptr<Meeting>> meetings{join(0), join(1), join(2)};
  HandOver graph;
  graph.run = [] { return std::string(); };
  EXPECT_FALSE(world->Issue(2, {AllReduceOf({}), Line(1), 7}));
  meetings[1]->Announce(GroupOf(1, 3), CallOf("all_gather", 1, 1));
  OnThreads(2, [&](int rank) {
    const auto issued = AllReduceOf({}, rank == 0 ? "f32[2]" : "f32[3]");
    EXPECT_FALSE(world->Issue(rank, {issued, Line(2), 7}));
    EXPECT_TRUE(world->Meet(rank, Line(3), "program", graph));
  });
  EXPECT_NE(Thrown<CollectiveMismatch>(
                [&] { meetings[2]->Announce(GroupOf(2, 3), CallOf("broadcast", 1, 2)); }),
            "nothing was thrown");
  EXPECT_FALSE(world->Issue(2, {AllReduceOf({}), Line(4), 9}));
  world->End();
}

// Who hears of it where its group meets, before or after that has broken there, hears of it no more
// in others, and each time in that group.
TEST(Told, WhoHearsOfItInAGroupHearsOfItNoMoreInOthersLikeIt) {
  for (const bool in_the_group : {true, false}) {
    const auto world = World::Begin(3, kLong);
    const auto join = [&](int rank) { return world->Join(GroupOf(rank, 3)); };
    const std::vector<std::shared_ptr<Meeting>> meetings{join(0), join(1), join(2)};
    const uint64_t group = meetings[0]->id();
    HandOver graph;
    graph.run = [] { return std::string(); };
    OnThreads(2, [&](int rank) {
      const auto issued = AllReduceOf({}, rank == 0 ? "f32[2]" : "f32[3]");
      EXPECT_FALSE(world->Issue(rank, {issued, Line(1), group}));
      const Failure failure = world->Meet(rank, Line(2), "program", graph);
      EXPECT_TRUE(failure);
      if (rank == 0 && in_the_group) meetings[0]->Fail(GroupOf(0, 3), failure);
    });
    if (in_the_group) {
      EXPECT_NE(Thrown<RanksDisagree>(
                    [&] { meetings[2]->Announce(GroupOf(2, 3), CallOf("all_gather", 1, 2)); }),
                "nothing was thrown");
    } else {
      EXPECT_NE(Thrown<CollectiveMismatch>(
                    [&] { meetings[2]->Meet(GroupOf(2, 3), CallOf("all_gather", 1, 2)); }),
                "nothing was thrown");
    }
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(world->Issue(rank, {AllReduceOf({}), Line(3), group})) << rank;
    }
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(4), group + 1000})) << rank;
    }
    world->End();
  }
}

// Who finds a failure in one group has lost what it has pending in another, and so have its peers
// there.
TEST(Told, WhoHasAPartInWhatIsLostElsewhere) {
  const auto world = World::Begin(3, kLong);
  const std::vector<std::shared_ptr<Meeting>> meetings{
      world->Join({"h", {0, 2}, {0, 2}, 3, 0}), nullptr, world->Join({"h", {0, 2}, {0, 2}, 3, 1})};
  for (int rank : {0, 1}) EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(1), 9}));
  meetings[2]->Announce({"h", {0, 2}, {0, 2}, 3, 1}, CallOf("all_gather", 1, 1));
  EXPECT_NE(Thrown<CollectiveMismatch>([&] {
              meetings[0]->Announce({"h", {0, 2}, {0, 2}, 3, 0}, CallOf("broadcast", 1, 0));
            }),
            "nothing was thrown");
  EXPECT_TRUE(world->Issue(1, {AllReduceOf({}), Line(2), 9}));
  EXPECT_TRUE(world->Issue(2, {AllReduceOf({}), Line(2), 9}));
  for (int rank : {0, 1, 2}) {
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(3), 10})) << rank;
  }
  world->End();
}

// A failure that a helper of a rank finds is heard of by its own thread, where that waits in this
// group. What it has pending in others is not lost: it runs.
TEST(Told, WhoWaitsWhileItsHelperFindsOne) {
  for (const bool in_it : {true, false}) {
    const auto world = World::Begin(2, kLong);
    const auto meeting = world->Join(GroupOf(0));
    world->Join(GroupOf(1));
    const uint64_t group = in_it ? meeting->id() : meeting->id() + 1000;
    HandOver graph;
    graph.run = [] { return std::string(); };
    std::thread own([&] {
      world->Enter(1);
      EXPECT_FALSE(world->Issue(1, {AllReduceOf({}), Line(1), group}));
      EXPECT_EQ(bool(world->Meet(1, Line(2), "program", graph)), in_it);
    });
    while (!world->HasPending(1)) std::this_thread::yield();
    if (in_it) std::this_thread::sleep_for(kShort);  // until it waits
    meeting->Fail(GroupOf(1), Because("the helper's", Failure::Kind::kMismatch));
    EXPECT_EQ(bool(world->Issue(0, {AllReduceOf({}), Line(1), group})), in_it);
    if (!in_it) {
      EXPECT_FALSE(world->Meet(0, Line(2), "program", graph));
    }
    own.join();
    world->End();
  }
}

// A failure that a rank finds when it has been told of another is another: who hears of it has not
// heard of the first.
TEST(Told, WhoHearsOfASecondFailureHasNotHeardOfTheFirst) {
  const auto world = World::Begin(3, kLong);
  const std::vector<std::shared_ptr<Meeting>> meetings{
      world->Join({"h", {0, 2}, {0, 2}, 3, 0}), nullptr, world->Join({"h", {0, 2}, {0, 2}, 3, 1})};
  const CallPtr barrier = CallOf("barrier()", 1, 1);
  meetings[2]->Announce({"h", {0, 2}, {0, 2}, 3, 1}, barrier);
  OnThreads(2, [&](int rank) {
    HandOver graph;
    graph.run = [] { return std::string("ran"); };
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}, rank == 0 ? "f32[2]" : "f32[3]"), Line(1)}));
    EXPECT_TRUE(world->Meet(rank, Line(2), "program", graph));
  });
  EXPECT_NE(Thrown<CollectiveMismatch>([&] {
              const CallPtr call = CallOf("broadcast()", 1, 0);
              meetings[0]->Announce({"h", {0, 2}, {0, 2}, 3, 0}, call);
              meetings[0]->Meet({"h", {0, 2}, {0, 2}, 3, 0}, call);
            }),
            "nothing was thrown");
  const std::string second = Thrown<CollectiveMismatch>(
      [&] { meetings[2]->Announce({"h", {0, 2}, {0, 2}, 3, 1}, CallOf("barrier()", 2, 1)); });
  EXPECT_TRUE(Has(second, "broadcast()")) << second;
  const std::string first = world->Issue(2, {AllReduceOf({}), Line(3)}).Text();
  EXPECT_TRUE(Has(first, "f32[3]")) << first;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(4)})) << rank;
  }
  world->End();
}

// Whose call has failed by itself, while a peer called something else, hears of that in their group
// alone, each time; and not in the next one, if it has begun anew.
TEST(Told, WhoseCallFailsByItselfHearsOfAnotherInTheirGroup) {
  const auto world = World::Begin(2, kLong);
  const auto meeting = world->Join(GroupOf(0));
  world->Join(GroupOf(1));
  const CallPtr fails = CallOf("all_reduce()", 1, 1);
  fails->meets = false;
  meeting->Announce(GroupOf(1), fails);
  fails->End(GroupCall::State::kFailed);
  EXPECT_NE(
      Thrown<CollectiveMismatch>([&] { meeting->Announce(GroupOf(0), CallOf("barrier()", 1, 0)); }),
      "nothing was thrown");
  EXPECT_FALSE(world->Issue(1, {AllReduceOf({}), Line(3)}));
  for (int time = 0; time < 2; ++time) {
    EXPECT_NE(Thrown<CollectiveMismatch>(
                  [&] { meeting->Announce(GroupOf(1), CallOf("barrier()", 2, 1)); }),
              "nothing was thrown");
  }
  const auto next = world->Join(GroupOf(1));
  world->Join(GroupOf(0));
  OnThreads(2, [&](int rank) {
    const CallPtr barrier = CallOf("barrier()", 1, rank);
    next->Announce(GroupOf(rank), barrier);
    EXPECT_EQ(next->Meet(GroupOf(rank), barrier).size(), 2u);
  });
  world->End();
}

// Who has waited the time limit of its group with calls of none, and says so, has nothing pending:
// the others hear of it once, and may try again before it has broken its group with that.
TEST(Told, OfATimeLimitOnce) {
  const auto world = World::Begin(3, kLong);
  const auto meeting = world->Join({"h", {0, 2}, {0, 2}, 3, 0});  // of which rank 1 is no member
  world->SetLimit(0, kShort);
  HandOver graph;
  graph.run = [] { return std::string(); };
  graph.compiled = true;
  std::atomic<bool> tries_again{false};
  std::thread other([&] {
    EXPECT_FALSE(world->Issue(1, {AllReduceOf({}), Line(1)}));
    EXPECT_EQ(world->Meet(1, Line(2), "program", graph).kind, Failure::Kind::kTimeout);
    EXPECT_FALSE(world->Issue(1, {AllReduceOf({}), Line(3)}));
    tries_again = true;
    EXPECT_FALSE(world->Meet(1, Line(4), "program", graph));
  });
  while (!world->HasPending(1)) std::this_thread::yield();
  EXPECT_FALSE(world->Issue(0, {AllReduceOf({}), Line(1)}));
  const Failure missing = world->Meet(0, Line(2), "program", graph);
  EXPECT_EQ(missing.kind, Failure::Kind::kTimeout);
  while (!tries_again) std::this_thread::yield();
  std::this_thread::sleep_for(kShort);  // until it waits
  meeting->Fail({"h", {0, 2}, {0, 2}, 3, 0}, missing);
  world->SetLimit(0, World::kNoLimit);
  OnThreads(3, [&](int rank) {
    if (rank == 1) return;
    EXPECT_EQ(bool(world->Issue(rank, {AllReduceOf({}), Line(3)})), rank == 2);
    if (rank == 2) {
      EXPECT_FALSE(world->Issue(rank, {AllReduceOf({}), Line(3)}));
    }
    EXPECT_FALSE(world->Meet(rank, Line(4), "program", graph));
  });
  other.join();
  world->End();
}

}  // namespace
}  // namespace xla_cc
