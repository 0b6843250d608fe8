// Ops of uneven sizes in worlds of thousands: neither what is held on the way nor the module grows
// with ranks times members where members of a group share what they know.
#include <ctime>
#include <fstream>

#include "lowering/rules/uneven_rows.h"
#include "tests/lowering/testing.h"

namespace xla_cc {
namespace {

constexpr int64_t kWorld = 8192;
constexpr size_t kMiB = 1 << 20;

// What this process holds at most from here on: Linux counts from what is written.
class Peak {
 public:
  Peak() {
    std::ofstream("/proc/self/clear_refs") << 5;
    before_ = Now("VmHWM:");
  }
  size_t Grown() const { return Now("VmHWM:") - before_; }

 private:
  static size_t Now(const std::string& name) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
      size_t kib = 0;
      if (word == name && status >> kib) return kib * 1024;
    }
    ADD_FAILURE() << "no " << name;
    return 0;
  }
  size_t before_ = 0;
};

Sizes Uneven(int64_t world_size) {
  Sizes sizes;
  for (int64_t rank = 0; rank < world_size; ++rank) sizes.push_back(1 + rank % 3);
  return sizes;
}

Groups Blocks(int64_t size) {
  Lists lists;
  for (int64_t first = 0; size > 0 && first < kWorld; first += size) {
    lists.emplace_back();
    for (int64_t i = 0; i < size; ++i) lists.back().push_back(first + i);
  }
  return Groups(lists);
}

TEST(RowsOfRanks, AreKeptOnce) {
  const RankRows of_world = InGroups(Uneven(kWorld), Groups(), kWorld);
  EXPECT_EQ(of_world.different(), 1u);
  EXPECT_TRUE(Starts(of_world).AllSame());
  EXPECT_EQ(EvenStarts(kWorld, kWorld, 3).different(), 1u);
  // Of sizes 1, 2, 3 in turns, groups of 64 begin in three ways.
  const RankRows of_groups = InGroups(Uneven(kWorld), Blocks(64), kWorld);
  EXPECT_EQ(of_groups.different(), 3u);
  EXPECT_EQ(of_groups[64], of_groups[127]);
  EXPECT_NE(of_groups[63], of_groups[64]);
  EXPECT_EQ(Sums(of_groups)[100], Sums(of_groups)[64]);
}

TEST(RowsOfRanks, AreThoseThatWereGiven) {
  RankRows rows(3, {0, 0});
  EXPECT_TRUE(rows.AllSame());
  rows.Give({0, 2}, {1, 5});
  rows.Give(1, {1, 7});
  EXPECT_EQ(rows.different(), 2u);  // nobody has the first any more
  EXPECT_EQ(rows.Numbers(), (Row{0, 1, 0}));
  EXPECT_EQ(rows.Different(1), (Row{1, 7}));
  EXPECT_TRUE(Starts(rows).AllSame()) << "what differs is not in the starts";
  EXPECT_EQ(Sums(rows), (Sizes{6, 8, 6}));
}

class LargeWorlds : public testing::TestWithParam<const char*> {};

TEST_P(LargeWorlds, AreLoweredInLittleMemory) {
  const Target target = TargetOf(GetParam(), kWorld);
  const Sizes sizes = Uneven(kWorld);
  for (const int64_t members : {int64_t{0}, int64_t{64}}) {
    const Groups groups = Blocks(members);
    const int64_t rows = Largest(Sums(InGroups(sizes, groups, kWorld)));
    const std::vector<std::pair<Collective, int64_t>> calls = {
        {UnevenAllGather{sizes, groups}, Largest(sizes)},
        {UnevenReduceScatter{{}, sizes, groups}, rows},
    };
    for (const auto& [call, operand] : calls) {
      const Peak peak;
      const Lowered lowered = MustLower(call, {F32({operand, 4})}, target);
      const std::string what = Name(OpFor(call)) + " in groups of " + std::to_string(members);
      // A row a rank would be 512 MiB of memory, and 64 MiB of a module or more.
      EXPECT_LT(lowered.bytes.size(), 5 * kMiB) << what;
      EXPECT_LT(peak.Grown(), 200 * kMiB) << what;
      std::cout << what << ": module " << lowered.bytes.size() << " bytes, memory "
                << peak.Grown() / kMiB << " MiB\n";
    }
  }
}

// Its sizes are as many as there are ranks, squared; time that is more was once minutes.
TEST(Exchanges, AreVerifiedInTimeOfTheirSizes) {
  constexpr int64_t kRanks = 1024;
  SizeMatrix sizes(kRanks, Sizes(kRanks));
  for (int64_t i = 0; i < kRanks * kRanks; ++i) sizes[i / kRanks][i % kRanks] = i % 3;
  Groups groups;
  const std::clock_t begin = std::clock();
  EXPECT_TRUE(ResolveSizes("uneven_all_to_all", kRanks, sizes, &groups).ok());
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 2);
}

INSTANTIATE_TEST_SUITE_P(Targets, LargeWorlds, testing::Values("cpu", "tpu", "gpu"));

}  // namespace
}  // namespace xla_cc
