// Replica groups: what holds for random ones, against definitions that are written another way.
#include <algorithm>
#include <numeric>
#include <random>

#include "lowering/model/groups.h"
#include "tests/lowering/testing.h"
#include "tests/lowering/wire_reader.h"

namespace xla_cc {
namespace {

// XLA's definition, for any dims and permutation:
// reshape(transpose(reshape(0..n-1, dims), perm), [groups, size]).
Lists Expand(const IotaGroups& iota) {
  const size_t rank = iota.dims.size();
  Dims strides(rank, 1);
  for (size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * iota.dims[i];
  Dims index(rank, 0);  // in the transposed array, counted up like an odometer
  Lists list(iota.groups);
  for (int64_t n = 0; n < iota.groups * iota.size; ++n) {
    int64_t id = 0;
    for (size_t i = 0; i < rank; ++i) id += index[i] * strides[iota.perm[i]];
    list[n / iota.size].push_back(id);
    for (size_t i = rank; i-- > 0;) {
      if (++index[i] < iota.dims[iota.perm[i]]) break;
      index[i] = 0;
    }
  }
  return list;
}

TEST(Iota, TheReferenceItself) {
  EXPECT_EQ(Expand({2, 3, {6}, {0}}), Lists({{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(Expand({2, 3, {3, 2}, {1, 0}}), Lists({{0, 2, 4}, {1, 3, 5}}));
  // The middle axis of a mesh, a form that we do not emit.
  EXPECT_EQ(Expand({4, 2, {2, 2, 2}, {0, 2, 1}}), Lists({{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
}

class RandomGroups : public testing::TestWithParam<int> {
 protected:
  std::mt19937 random_{static_cast<unsigned>(GetParam())};
  int64_t Upto(int64_t limit) { return static_cast<int64_t>(random_() % limit); }

  Lists Blocks(int64_t groups, int64_t size) {
    return Expand({groups, size, {groups * size}, {0}});
  }
  Lists Strided(int64_t groups, int64_t size) {
    return Expand({groups, size, {size, groups}, {1, 0}});
  }
  // Ranks dealt at random, to groups of any sizes.
  Lists Random(int64_t world_size) {
    Dims ranks(world_size);
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random_);
    Lists list;
    for (const int64_t rank : ranks) {
      if (list.empty() || Upto(3) == 0) list.emplace_back();
      list.back().push_back(rank);
    }
    return list;
  }
};

TEST_P(RandomGroups, RegularGroupsAreCompact) {
  const int64_t groups = 1 + Upto(12);
  const int64_t size = 1 + Upto(12);
  for (const Lists& list : {Blocks(groups, size), Strided(groups, size)}) {
    Groups resolved(list);
    ASSERT_TRUE(resolved.Resolve("op", groups * size).ok());
    const auto iota = resolved.Iota(groups * size);
    ASSERT_TRUE(iota.has_value()) << Groups(list).ToString();
    EXPECT_EQ(Expand(*iota), list);
  }
}

// One exchange of two ranks makes regular groups irregular, unless it leads to the other form.
TEST_P(RandomGroups, IrregularGroupsAreListed) {
  const int64_t groups = 2 + Upto(6);
  const int64_t size = 2 + Upto(6);
  Lists list = Upto(2) == 0 ? Blocks(groups, size) : Strided(groups, size);
  std::swap(list[Upto(groups)][Upto(size)], list[Upto(groups)][Upto(size)]);
  const auto iota = Groups(list).Iota(groups * size);
  EXPECT_EQ(iota.has_value(), list == Blocks(groups, size) || list == Strided(groups, size));
}

TEST_P(RandomGroups, ArithmeticAgreesWithTheList) {
  const int64_t world_size = 1 + Upto(24);
  Lists list = Random(world_size);
  Groups groups(list);
  ASSERT_TRUE(groups.Resolve("op", world_size).ok());
  std::sort(list.begin(), list.end());  // the order of the groups means nothing
  EXPECT_EQ(groups.Expanded(world_size), list);
  const Dims positions = groups.Positions(world_size);
  const Dims sizes = groups.Sizes(world_size);
  for (const Dims& group : list) {
    for (size_t i = 0; i < group.size(); ++i) {
      EXPECT_EQ(groups.Of(group[i], world_size), group);
      EXPECT_EQ(positions[group[i]], static_cast<int64_t>(i));
      EXPECT_EQ(sizes[group[i]], static_cast<int64_t>(group.size()));
    }
  }
  const WireReader proto(groups.ToProto(world_size).Serialize());
  if (const auto iota = groups.Iota(world_size)) {
    EXPECT_EQ(Expand(*iota), list);
    EXPECT_FALSE(proto.Has(1));
    // XLA dies of a compact list without dimensions.
    EXPECT_EQ(proto.Sub(2).Packed(3), iota->dims);
  } else {
    Lists written;
    for (const WireReader& group : proto.Subs(1)) written.push_back(group.Packed(1));
    EXPECT_EQ(written, list);
    EXPECT_FALSE(proto.Has(2));
  }
}

TEST_P(RandomGroups, OneMistakeIsFound) {
  const int64_t world_size = 2 + Upto(20);
  const Lists list = Random(world_size);
  const size_t at = Upto(static_cast<int64_t>(list.size()));
  const int64_t rank = list[at].back();
  const auto message = [&](const Lists& wrong) {
    const Status status = Groups(wrong).Resolve("op", world_size);
    return status.ok() ? "was not refused" : status.message();
  };
  Lists twice = list;
  twice[Upto(static_cast<int64_t>(list.size()))].push_back(rank);
  EXPECT_NE(message(twice).find("rank " + std::to_string(rank) + " is named twice (G1)"),
            std::string::npos)
      << message(twice);
  Lists foreign = list;
  foreign[at].back() = world_size;
  EXPECT_NE(message(foreign).find("and " + std::to_string(world_size) + " is none (G1)"),
            std::string::npos)
      << message(foreign);
}

// Ranks that are left out: of the forms that groups can be brought into, each keeps who is with
// whom.
TEST_P(RandomGroups, LeaveRanksOut) {
  const int64_t world_size = 2 + Upto(20);
  Lists list = Random(world_size);
  const size_t at = Upto(static_cast<int64_t>(list.size()));
  const int64_t rank = list[at].back();
  list[at].pop_back();
  if (list[at].empty()) list.erase(list.begin() + static_cast<int64_t>(at));
  if (list.empty()) return;
  Groups groups(list);
  ASSERT_TRUE(groups.Resolve("op", world_size).ok());
  std::sort(list.begin(), list.end());
  EXPECT_FALSE(groups.Covers(world_size));
  EXPECT_FALSE(groups.IsWorld());
  EXPECT_EQ(groups.Of(rank, world_size), Dims({rank}));
  EXPECT_EQ(groups.Sizes(world_size)[rank], 0);
  EXPECT_EQ(groups.Iota(world_size), std::nullopt);
  const Groups all = groups.WithSingles(world_size);
  EXPECT_TRUE(all.Covers(world_size));
  EXPECT_EQ(all.Of(rank, world_size), Dims({rank}));
  const auto completed = groups.Completed(world_size);
  // One rank fills up groups of one only.
  EXPECT_EQ(completed.has_value(), groups.Uniform() && groups.Size(world_size) == 1);
  const Groups sorted = groups.Sorted();
  EXPECT_TRUE(sorted.Ascending());
  const std::vector<int64_t> numbers = groups.Numbers(world_size);
  for (size_t number = 0; number < list.size(); ++number) {
    for (int64_t member : list[number]) {
      EXPECT_EQ(numbers[member], static_cast<int64_t>(number));
      EXPECT_EQ(all.Of(member, world_size), list[number]);
      Dims in_order = list[number];
      std::sort(in_order.begin(), in_order.end());
      EXPECT_EQ(sorted.Of(member, world_size), in_order);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGroups, testing::Range(0, 200));

}  // namespace
}  // namespace xla_cc
