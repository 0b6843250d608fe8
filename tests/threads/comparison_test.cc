#include "torch_xla_cc/threads/comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/threads/fakes.h"

namespace xla_cc {
namespace {

using Call = std::shared_ptr<const Lowered>;

const Call kWorld = AllReduceOf({});

// Ranks by what they have pending; those of an empty list have not come.
struct Ranks {
  explicit Ranks(const std::vector<std::vector<Call>>& pending) : states(pending.size()) {
    for (size_t rank = 0; rank < pending.size(); ++rank) {
      for (const Call& call : pending[rank]) Issue(rank, call);
      states[rank].waiting = !pending[rank].empty();
      states[rank].waits_at = Line(900 + static_cast<int>(rank));
    }
  }
  void Issue(size_t rank, const Call& call) {
    const int line = static_cast<int>(100 * rank + states[rank].pending.size());
    states[rank].last = {call, Line(line)};
    states[rank].pending.push_back(states[rank].last);
  }
  Verdict Judged() const {
    RankStates all;
    for (const RankState& state : states) all.push_back(&state);
    return Judge(all);
  }
  std::string Why() const {
    const Verdict verdict = Judged();
    EXPECT_TRUE(verdict.ranks.empty());
    return verdict.failure.Text();
  }
  std::vector<RankState> states;
};

using Going = std::vector<int64_t>;

TEST(Judge, AllGoOnTogether) {
  EXPECT_EQ(Ranks({{kWorld}, {kWorld}, {kWorld}}).Judged().ranks, Going({0, 1, 2}));
  // As equal calls that were found apart.
  EXPECT_EQ(Ranks({{kWorld}, {AllReduceOf({})}}).Judged().ranks, Going({0, 1}));
}

TEST(Judge, GroupsOfTheSameRanksAreNotOne) {
  Ranks ranks({{kWorld}, {kWorld}});
  ranks.states[0].pending[0].group = ranks.states[1].pending[0].group = 7;
  EXPECT_EQ(ranks.Judged().ranks, Going({0, 1}));
  for (const uint64_t other : {8, 0}) {
    ranks.states[1].pending[0].group = other;
    const std::string why = ranks.Why();
    EXPECT_NE(why.find("in different groups of torch.distributed: rank 0"), std::string::npos);
    EXPECT_EQ(why.find("of no group") != std::string::npos, other == 0) << why;
  }
}

TEST(Judge, WaitsForThoseWhoHaveNotCome) {
  const Verdict verdict = Ranks({{kWorld}, {}, {kWorld}}).Judged();
  EXPECT_TRUE(verdict.ranks.empty());
  EXPECT_FALSE(verdict.failure);
}

TEST(Judge, AGroupGoesOnWithoutTheOthers) {
  const Call pairs = AllReduceOf({{0, 1}, {2, 3}});
  EXPECT_EQ(Ranks({{pairs}, {pairs}, {}, {}}).Judged().ranks, Going({0, 1}));
  EXPECT_EQ(Ranks({{pairs}, {pairs}, {pairs}, {}}).Judged().ranks, Going({0, 1}));
  // Not if one of them also needs somebody else.
  EXPECT_EQ(Ranks({{pairs}, {pairs, kWorld}, {}, {}}).Judged().ranks, Going());
}

TEST(Judge, CallsThatDiffer) {
  const std::string why = Ranks({{kWorld}, {AllReduceOf({}, "f32[3]")}}).Why();
  EXPECT_NE(why.find("rank 0 all_reduce(groups=world) of f32[2] at line 0, rank 1 "
                     "all_reduce(groups=world) of f32[3] at line 100"),
            std::string::npos)
      << why;
}

TEST(Judge, ARankThatHasEnded) {
  Ranks ranks({{kWorld}, {}});
  ranks.states[1].finished = true;
  const std::string why = ranks.Why();
  EXPECT_NE(why.find("rank 1 of its group [0,1] has ended without calling it"), std::string::npos)
      << why;
}

TEST(Judge, ARankThatRunsWithFewerCalls) {
  const std::string why = Ranks({{kWorld, kWorld}, {kWorld}}).Why();
  EXPECT_NE(why.find("rank 0 calls all_reduce(groups=world) in group [0,1] at line 1, and rank 1 "
                     "runs its graph without it at line 901"),
            std::string::npos)
      << why;
}

TEST(Judge, ACircleAcrossGroups) {
  const Call a = AllReduceOf({{0, 1}});
  const Call b = AllReduceOf({{1, 2}});
  const Call c = AllReduceOf({{0, 2}});
  const std::string why = Ranks({{a, c}, {b, a}, {c, b}}).Why();
  EXPECT_NE(why.find("would wait for each other in a circle: rank 0 for group [0,1]"),
            std::string::npos)
      << why;
  EXPECT_EQ(Ranks({{a, c}, {a, b}, {b, c}}).Judged().ranks, Going({0, 1, 2}));
}

TEST(Judge, NobodyGoesOn) {
  const Call a = AllReduceOf({{0, 1}});
  const Call b = AllReduceOf({{1, 2}});
  const Call c = AllReduceOf({{0, 2}});
  const std::string why = Ranks({{a}, {b}, {c}}).Why();
  EXPECT_NE(why.find("every rank waits for another: rank 0 with"), std::string::npos) << why;
}

TEST(Missing, NamesWhoHasNotCome) {
  Ranks ranks({{kWorld}, {}, {}});
  ranks.states[1].last = {kWorld, Line(7)};
  RankStates all;
  for (const RankState& state : ranks.states) all.push_back(&state);
  const Failure late = Missing(all, 0, std::chrono::milliseconds(20), true);
  EXPECT_EQ(late.kind, Failure::Kind::kTimeout);
  EXPECT_EQ(late.Text(),
            "rank 0 waited 20 ms, the time limit of launch, to run its graph at line 900; rank 1 "
            "has not come, its last collective was all_reduce(groups=world) at line 7; rank 2 has "
            "not come, its last collective was none");
  ranks.states[1].waiting = true;
  EXPECT_NE(
      Missing(all, 0, std::chrono::milliseconds(20), true).Text().find("rank 1 waits for others"),
      std::string::npos);
}

// Programs that are right by construction: each rank's calls are those of one list for all, in its
// order, of the groups that it is in; and some ranks run what they have at any time.
class Random {
 public:
  explicit Random(unsigned seed) : random_(seed) {}
  size_t Below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  // A call for each step: disjoint groups of some ranks.
  std::vector<std::vector<int64_t>> Groups(size_t ranks) {
    std::vector<int64_t> all(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) all[rank] = static_cast<int64_t>(rank);
    std::shuffle(all.begin(), all.end(), random_);
    std::vector<std::vector<int64_t>> groups(1);
    for (int64_t rank : all) {
      if (!groups.back().empty() && Below(2) == 0) groups.emplace_back();
      groups.back().push_back(rank);
    }
    for (auto& group : groups) std::sort(group.begin(), group.end());
    std::sort(groups.begin(), groups.end());
    return groups;
  }

 private:
  std::mt19937 random_;
};

TEST(Judge, ProgramsThatAreRightGoOnInAnyOrder) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const size_t world = 2 + random.Below(5);
    Ranks ranks{std::vector<std::vector<Call>>(world)};
    for (size_t step = 1 + random.Below(4); step > 0; --step) {
      for (size_t calls = random.Below(4); calls > 0; --calls) {
        const Call call = AllReduceOf(random.Groups(world));
        for (size_t rank = 0; rank < world; ++rank) ranks.Issue(rank, call);
      }
      std::vector<size_t> coming(world);
      for (size_t rank = 0; rank < world; ++rank) coming[rank] = rank;
      while (!coming.empty()) {
        const size_t at = random.Below(coming.size());
        RankState& one = ranks.states[coming[at]];
        coming.erase(coming.begin() + static_cast<int64_t>(at));
        one.waiting = !one.pending.empty();
        const Verdict verdict = ranks.Judged();
        ASSERT_FALSE(verdict.failure) << "seed " << seed << ": " << verdict.failure.Text();
        for (int64_t rank : verdict.ranks) {
          ranks.states[rank].waiting = false;
          ranks.states[rank].pending.clear();
        }
      }
      for (const RankState& state : ranks.states) {
        ASSERT_TRUE(state.pending.empty()) << "seed " << seed;
      }
    }
  }
}

TEST(Judge, OneCallThatDiffersIsAFailureAndNoHang) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const size_t world = 2 + random.Below(5);
    const size_t wrong = random.Below(world);
    const size_t calls = 1 + random.Below(4);
    const size_t at = random.Below(calls);
    Ranks ranks{std::vector<std::vector<Call>>(world)};
    for (size_t i = 0; i < calls; ++i) {
      auto groups = random.Groups(world);
      if (i == at) groups = {};  // of the world, so that somebody notices
      for (size_t rank = 0; rank < world; ++rank) {
        const bool differs = i == at && rank == wrong;
        ranks.Issue(rank, AllReduceOf(groups, differs ? "s8[1]" : "f32[2]"));
      }
    }
    for (RankState& state : ranks.states) state.waiting = true;
    const Verdict verdict = ranks.Judged();
    ASSERT_TRUE(verdict.failure) << "seed " << seed;
    ASSERT_NE(verdict.failure.Text().find("s8[1]"), std::string::npos) << verdict.failure.Text();
  }
}

}  // namespace
}  // namespace xla_cc
