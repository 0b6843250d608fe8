#include "torch_xla_cc/threads/meeting.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/threads/calls.h"
#include "tests/threads/fakes.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/threads/world.h"

namespace xla_cc {
namespace {

TEST(Meeting, EachGetsTheCallsOfAllByRank) {
  const auto meeting = std::make_shared<Meeting>(nullptr);
  OnThreads(4, [&](int rank) {
    for (uint64_t number = 1; number <= 200; ++number) {
      const CallPtr call = CallOf("barrier", number, rank);
      call->sent = {rank, rank, rank, rank};
      call->received = {0, 1, 2, 3};
      meeting->Announce(GroupOf(rank, 4), call);
      const std::vector<CallPtr> calls = meeting->Meet(GroupOf(rank, 4), call);
      ASSERT_EQ(calls.size(), 4u);
      for (int from = 0; from < 4; ++from) EXPECT_EQ(calls[from]->sent[0], from);
    }
  });
}

TEST(Meeting, DifferentCallsAreRaisedByAll) {
  const auto meeting = std::make_shared<Meeting>(nullptr);
  std::atomic<int> raised{0};
  OnThreads(2, [&](int rank) {
    const std::string why = Thrown<CollectiveMismatch>([&] {
      const CallPtr call = CallOf(rank == 0 ? "barrier()" : "broadcast()", 1, rank);
      meeting->Announce(GroupOf(rank), call);
      meeting->Meet(GroupOf(rank), call);
    });
    EXPECT_TRUE(Has(why, "rank 0: barrier() at line 0; rank 1: broadcast() at line 1")) << why;
    ++raised;
    // And from then on.
    EXPECT_EQ(Thrown<CollectiveMismatch>(
                  [&] { meeting->Announce(GroupOf(rank), CallOf("barrier()", 2, rank)); }),
              why);
  });
  EXPECT_EQ(raised, 2);
}

TEST(Meeting, PartsOfDifferentSizes) {
  const auto meeting = std::make_shared<Meeting>(nullptr);
  OnThreads(2, [&](int rank) {
    const CallPtr call = CallOf("all_to_all", 1, rank);
    call->sent = {1, 2};
    call->received = {1, 2};
    meeting->Announce(GroupOf(rank), call);
    const std::string why = Thrown<CollectiveMismatch>([&] { meeting->Meet(GroupOf(rank), call); });
    EXPECT_TRUE(Has(why, "rank 0 sends rank 1 a part of size 2 at line 0, which expects 1")) << why;
  });
}

TEST(Meeting, WhoHasNotComeIsNamed) {
  const auto meeting = std::make_shared<Meeting>(nullptr);
  meeting->Announce(GroupOf(1, 3), CallOf("broadcast()", 0, 1));
  const CallPtr call = CallOf("barrier()", 1, 0, kShort);
  meeting->Announce(GroupOf(0, 3), call);
  const std::string why = Thrown<CollectiveTimeout>([&] { meeting->Meet(GroupOf(0, 3), call); });
  EXPECT_EQ(why,
            "group g: rank 0 waited the timeout of 30 ms in barrier() at line 0; rank 1 has not "
            "come, and last called broadcast() at line 1; rank 2 has not come, and made no call of "
            "this group");
}

TEST(Meeting, WhatIsSentComesInItsOrder) {
  const auto meeting = std::make_shared<Meeting>(nullptr);
  OnThreads(2, [&](int rank) {
    for (int i = 0; i < 300; ++i) {
      const int tag = i % 3;
      if (rank == 0) {
        meeting->Put(GroupOf(0), 1, tag, CallOf("f32[2]", 0, 0), i);
        continue;
      }
      const auto slot =
          meeting->Ask(GroupOf(1), i % 2 == 0 ? 0 : kAnySource, tag, CallOf("f32[2]", 0, 1));
      meeting->Await(GroupOf(1), slot, kLong);
      EXPECT_EQ(slot->source, 0);
      EXPECT_EQ(std::any_cast<int>(slot->value), i);
    }
  });
}

TEST(Meeting, AReceiveThatWasGivenUpTakesNothing) {
  const auto meeting = std::make_shared<Meeting>(nullptr);
  meeting->Ask(GroupOf(1), 0, 5, CallOf("f32[2]", 0, 1));  // nobody keeps it
  meeting->Put(GroupOf(0), 1, 5, CallOf("f32[2]", 0, 0), 7);
  const auto slot = meeting->Ask(GroupOf(1), 0, 5, CallOf("f32[2]", 0, 1));
  EXPECT_TRUE(meeting->HasCome(slot));
  EXPECT_EQ(std::any_cast<int>(slot->value), 7);
}

TEST(Meeting, AReceiveOfAnotherShapeOrOfNothing) {
  for (const bool sent : {true, false}) {
    const auto meeting = std::make_shared<Meeting>(nullptr);
    if (sent) meeting->Put(GroupOf(0), 1, 5, CallOf("f32[3]", 0, 0), 7);
    if (!sent) meeting->Put(GroupOf(0), 1, 6, CallOf("f32[3]", 0, 0), 7);
    const auto slot = meeting->Ask(GroupOf(1), 0, 5, CallOf("f32[2]", 0, 1));
    const std::string why =
        Thrown<RanksDisagree>([&] { meeting->Await(GroupOf(1), slot, kShort); });
    EXPECT_TRUE(Has(why, sent ? "rank 0 calls f32[3] at line 0, and rank 1 f32[2] at line 1"
                              : "Sent and not received: rank 0 f32[3] at line 0; that is all"))
        << why;
  }
}

TEST(Meeting, TheEndOfItsWorldWakesWhoWaits) {
  const auto world = World::Begin(2, kLong);
  const auto meeting = world->Join(GroupOf(0));
  EXPECT_EQ(world->Join(GroupOf(1)), meeting);
  std::atomic<bool> announced{false};
  std::thread waits([&] {
    const CallPtr call = CallOf("barrier()", 1);
    meeting->Announce(GroupOf(0), call);
    announced = true;
    EXPECT_EQ(Thrown<RanksDisagree>([&] { meeting->Meet(GroupOf(0), call); }),
              "the launch has ended");
  });
  while (!announced) std::this_thread::yield();
  world->End();
  waits.join();
}

// destroy_process_group and init_process_group: nothing is left of what was broken, also where a
// rank is slower to leave than another to come again.
TEST(Meeting, AGroupThatIsMadeAgainMeetsAnew) {
  const auto world = World::Begin(2, kLong);
  auto first = world->Join(GroupOf(0));
  auto slow = world->Join(GroupOf(1));
  ASSERT_EQ(slow, first);
  EXPECT_NE(Thrown<CollectiveTimeout>([&] {
              const CallPtr call = CallOf("barrier()", 1, 0, kShort);
              first->Announce(GroupOf(0), call);
              first->Meet(GroupOf(0), call);
            }),
            "nothing was thrown");
  first.reset();
  const auto again = world->Join(GroupOf(0));
  EXPECT_NE(again, slow);
  slow.reset();
  EXPECT_EQ(world->Join(GroupOf(1)), again);
  again->Announce(GroupOf(0), CallOf("barrier()", 1));
  // Another group of that name, or of these ranks, is another.
  RankGroup other = GroupOf(0);
  other.name = "h";
  EXPECT_NE(world->Join(other), again);
  RankGroup larger = GroupOf(0, 3);
  larger.world_size = 2;
  EXPECT_NE(world->Join(larger), again);
  world->End();
}

// Calls that only compare leave with the last of them. Not if one that differs waits with them: two
// that come after it at once are each other's like.
TEST(Meeting, OneThatWaitsAmongThoseThatOnlyCompare) {
  for (int i = 0; i < 300; ++i) {
    const auto world = World::Begin(3, kLong);
    const auto join = [&](int rank) { return world->Join(GroupOf(rank, 3)); };
    const std::vector<std::shared_ptr<Meeting>> meetings{join(0), join(1), join(2)};
    const CallPtr barrier = CallOf("barrier()", 1, 2);
    meetings[2]->Announce(GroupOf(2, 3), barrier);
    OnThreads(3, [&](int rank) {
      const std::string why = Thrown<CollectiveMismatch>([&] {
        if (rank == 2) {
          meetings[2]->Meet(GroupOf(2, 3), barrier);
          return;
        }
        const CallPtr call = CallOf("all_reduce()", 1, rank);
        call->meets = false;
        meetings[rank]->Announce(GroupOf(rank, 3), call);
      });
      EXPECT_TRUE(Has(why, "barrier()")) << rank << why;
    });
    world->End();
  }
}

TEST(Meeting, WhoWaitsForItsGraphHearsOfIt) {
  const auto world = World::Begin(2, kLong);
  const auto meeting = world->Join(GroupOf(0));
  world->Join(GroupOf(1));
  std::thread waits([&] {
    const CallPtr call = CallOf("all_reduce()", 1, 0);
    call->meets = false;  // it meets the others when it runs its graph
    meeting->Announce(GroupOf(0), call);
    HandOver never;
    never.run = [] { return "it ran"; };
    EXPECT_FALSE(world->Issue(0, {AllReduceOf({}), Line(1), meeting->id()}));
    const Failure failure = world->Meet(0, Line(2), "program", never);
    EXPECT_EQ(failure.kind, Failure::Kind::kMismatch);
    EXPECT_TRUE(Has(failure.Text(), "rank 1: barrier() at line 1")) << failure.Text();
  });
  while (!world->HasPending(0)) std::this_thread::yield();
  EXPECT_NE(
      Thrown<CollectiveMismatch>([&] { meeting->Announce(GroupOf(1), CallOf("barrier()", 1, 1)); }),
      "nothing was thrown");
  waits.join();
  world->End();
}

// Which ranks have left and come again before the others come is the ranks' own affair.
TEST(Meeting, WhatWasSentIsThereWhenTheSenderHasLeft) {
  const auto world = World::Begin(2, kLong);
  world->Join(GroupOf(0))->Put(GroupOf(0), 1, 5, CallOf("f32[2]", 0, 0), 7);
  const auto meeting = world->Join(GroupOf(1));
  const auto slot = meeting->Ask(GroupOf(1), 0, 5, CallOf("f32[2]", 0, 1));
  EXPECT_TRUE(meeting->HasCome(slot));
  world->End();
}

TEST(Meeting, ANameThatComesAgainForOthers) {
  const auto world = World::Begin(3, kLong);
  const auto of = [&](const std::vector<int64_t>& members, int rank) {
    RankGroup group{"1", members, members, 3, rank};
    return world->Join(group);
  };
  of({0, 1}, 0);
  of({0, 1}, 1);
  const auto again = of({0, 2}, 0);
  EXPECT_EQ(of({0, 2}, 1), again);
  world->End();
}

// One that breaks tells its world, and a world that has stopped its meetings: neither may hold its
// lock while it takes the other's (which the build with TSAN sees).
TEST(Meeting, BreaksAndIsStoppedByItsWorld) {
  const auto world = World::Begin(3, kLong);
  const auto meeting = world->Join(GroupOf(0, 3));
  EXPECT_EQ(world->Join(GroupOf(1, 3)), meeting);
  meeting->Announce(GroupOf(0, 3), CallOf("barrier()", 1, 0));
  Thrown<CollectiveMismatch>(
      [&] { meeting->Announce(GroupOf(1, 3), CallOf("all_reduce()", 1, 1)); });
  world->Abort("another rank has failed");
  const auto late = world->Join(GroupOf(2, 3));
  EXPECT_EQ(late, meeting);
  EXPECT_EQ(Thrown<RanksDisagree>([&] { late->Announce(GroupOf(2, 3), CallOf("barrier()", 1)); }),
            "another rank has failed");
  world->End();
}

TEST(Meeting, OfAWorldThatHasStopped) {
  const auto world = World::Begin(2, kLong);
  world->Abort("another rank has failed");
  const auto late = world->Join(GroupOf(0));
  EXPECT_EQ(Thrown<RanksDisagree>([&] { late->Announce(GroupOf(0), CallOf("barrier()", 1)); }),
            "another rank has failed");
  world->End();
  EXPECT_TRUE(Has(Thrown<RanksDisagree>([&] { world->Join(GroupOf(0)); }), "outside of"));
}

TEST(Meeting, NobodyWaitsForARankThatHasReturned) {
  for (const bool before : {true, false}) {
    const auto world = World::Begin(3, kLong);
    if (before) world->Finish(2, Line(9));
    const auto meeting = world->Join(GroupOf(0, 3));
    std::thread later([&] {
      if (!before) world->Finish(2, Line(9));
    });
    OnThreads(2, [&](int rank) {
      const RankGroup group = GroupOf(rank, 3);
      const CallPtr call = CallOf("barrier()", 1, rank);
      const std::string why = Thrown<RanksDisagree>([&] {
        meeting->Announce(group, call);
        meeting->Meet(group, call);
      });
      EXPECT_TRUE(Has(why, "waits with barrier()") && Has(why, "rank 2 has ended")) << why;
    });
    later.join();
    world->End();
  }
  const auto world = World::Begin(3, kLong);
  const auto meeting = world->Join(GroupOf(0, 3));
  world->Finish(2, Line(9));
  const auto any = meeting->Ask(GroupOf(0, 3), kAnySource, 5, CallOf("recv()", 0, 0));
  EXPECT_TRUE(Has(Thrown<RanksDisagree>([&] { meeting->Await(GroupOf(0, 3), any, kShort); }),
                  "nothing was sent"));  // rank 1 may send yet
  world->End();
}

}  // namespace
}  // namespace xla_cc
