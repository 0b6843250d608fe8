// Replica groups, by example. groups_sweep_test.cc has the random ones.
#include "lowering/model/groups.h"

#include <set>

#include "tests/lowering/testing.h"
#include "tests/lowering/wire_reader.h"

namespace xla_cc {
namespace {

struct Form {
  const char* name;
  Lists list;  // empty: the world
  int64_t world_size;
  const char* hlo_text;
  const char* text;
  Dims positions, sizes;
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class Forms : public testing::TestWithParam<Form> {};

TEST_P(Forms, Facts) {
  const Form& form = GetParam();
  Groups groups(form.list);
  ASSERT_TRUE(groups.Resolve("op", form.world_size).ok());
  EXPECT_EQ(groups.ToHloText(form.world_size), form.hlo_text);
  EXPECT_EQ(groups.ToString(), form.text);
  EXPECT_EQ(groups.Positions(form.world_size), form.positions);
  EXPECT_EQ(groups.Sizes(form.world_size), form.sizes);
  EXPECT_EQ(groups.IsWorld(), std::string(form.text) == "world");
  const bool uniform = std::set<int64_t>(form.sizes.begin(), form.sizes.end()).size() == 1;
  EXPECT_EQ(groups.Uniform(), uniform);
  if (uniform) {
    EXPECT_EQ(groups.Size(form.world_size), form.sizes[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Groups, Forms,
    testing::Values(
        Form{"World", {}, 4, "[1,4]<=[4]", "world", {0, 1, 2, 3}, {4, 4, 4, 4}},
        Form{"WorldListed", {{0, 1, 2, 3}}, 4, "[1,4]<=[4]", "world", {0, 1, 2, 3}, {4, 4, 4, 4}},
        Form{"WorldOfOne", {}, 1, "[1,1]<=[1]", "world", {0}, {1}},
        Form{"WorldInAnotherOrder", {{2, 0, 1}}, 3, "{{2,0,1}}", "[[2,0,1]]", {1, 2, 0}, {3, 3, 3}},
        Form{"Blocks",
             {{0, 1}, {2, 3}},
             4,
             "[2,2]<=[4]",
             "[[0,1],[2,3]]",
             {0, 1, 0, 1},
             {2, 2, 2, 2}},
        Form{"Strided",
             {{0, 2, 4}, {1, 3, 5}},
             6,
             "[2,3]<=[3,2]T(1,0)",
             "[[0,2,4],[1,3,5]]",
             {0, 0, 1, 1, 2, 2},
             {3, 3, 3, 3, 3, 3}},
        Form{"Alone", {{0}, {1}, {2}}, 3, "[3,1]<=[3]", "[[0],[1],[2]]", {0, 0, 0}, {1, 1, 1}},
        Form{"Listed",
             {{0, 3}, {1, 2}},
             4,
             "{{0,3},{1,2}}",
             "[[0,3],[1,2]]",
             {0, 0, 1, 1},
             {2, 2, 2, 2}},
        Form{"BlocksInAnotherOrder",
             {{2, 3}, {0, 1}},
             4,
             "[2,2]<=[4]",
             "[[0,1],[2,3]]",
             {0, 1, 0, 1},
             {2, 2, 2, 2}},
        Form{"MembersInAnotherOrder",
             {{0, 1}, {3, 2}},
             4,
             "{{0,1},{3,2}}",
             "[[0,1],[3,2]]",
             {0, 1, 1, 0},
             {2, 2, 2, 2}},
        Form{"Unequal",
             {{0, 1, 2}, {3}},
             4,
             "{{0,1,2},{3}}",
             "[[0,1,2],[3]]",
             {0, 1, 2, 0},
             {3, 3, 3, 1}}),
    [](const auto& info) { return info.param.name; });

TEST(Groups, Of) {
  const Groups groups(Lists{{0, 3}, {2, 1}});
  EXPECT_EQ(groups.Of(3, 4), Dims({0, 3}));
  EXPECT_EQ(groups.Of(1, 4), Dims({2, 1}));
  EXPECT_EQ(Groups().Of(1, 3), Dims({0, 1, 2}));
  EXPECT_EQ(groups.Of(4, 5), Dims({4})) << "in none";
}

struct Violation {
  const char* name;
  Lists list;
  const char* required;  // what the message says is wrong
  const char* remedy;
};

void PrintTo(const Violation& violation, std::ostream* out) { *out << violation.name; }

class Violations : public testing::TestWithParam<Violation> {};

TEST_P(Violations, AreRefused) {
  Groups groups(GetParam().list);
  const Status status = groups.Resolve("all_gather", 4);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "all_gather: groups = " + Groups(GetParam().list).ToString() +
                                  ", but it must be " + GetParam().required + " (G1). " +
                                  GetParam().remedy + ".");
}

constexpr char kRange[] = "Name ranks of this world of 4";
constexpr char kOnce[] = "Name no rank twice";
constexpr char kEmpty[] = "Leave the empty group out";

INSTANTIATE_TEST_SUITE_P(
    Groups, Violations,
    testing::Values(
        Violation{"TooLarge",
                  {{0, 1}, {2, 4}},
                  "lists of ranks of the world, 0 to 3, and 4 is none",
                  kRange},
        Violation{"Negative",
                  {{0, 1}, {2, -1}},
                  "lists of ranks of the world, 0 to 3, and -1 is none",
                  kRange},
        Violation{
            "TwiceInOneGroup", {{0, 1, 1}, {2, 3}}, "disjoint, and rank 1 is named twice", kOnce},
        Violation{"InTwoGroups", {{0, 1, 2}, {2, 3}}, "disjoint, and rank 2 is named twice", kOnce},
        Violation{"EmptyGroup", {{0, 1, 2, 3}, {}}, "lists of at least one rank", kEmpty},
        Violation{"OnlyAnEmptyGroup", {{}}, "lists of at least one rank", kEmpty}),
    [](const auto& info) { return info.param.name; });

TEST(Groups, WithRanksInNone) {
  Groups groups(Lists{{5, 1}, {0, 2}});
  ASSERT_TRUE(groups.Resolve("op", 8).ok());
  EXPECT_EQ(groups.Size(8), 2);
  EXPECT_EQ(groups.Sizes(8), Dims({2, 2, 2, 0, 0, 2, 0, 0}));
  EXPECT_EQ(groups.Positions(8), Dims({0, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(groups.Sorted().ToString(), "[[0,2],[1,5]]");
  EXPECT_EQ(groups.WithSingles(8).ToString(), "[[0,2],[5,1],[3],[4],[6],[7]]");
  EXPECT_EQ(groups.Completed(8)->ToString(), "[[0,2],[3,4],[5,1],[6,7]]");
  EXPECT_EQ(groups.Completed(7), std::nullopt);
  EXPECT_EQ(Groups(Lists{{0, 1, 2}, {3}}).Size(5), 3) << "the longest";
  EXPECT_EQ(Groups(Lists{{0, 1, 2}, {3}}).Completed(5), std::nullopt);
  EXPECT_EQ(Groups(Lists{{0, 1, 2, 3}}).Completed(4)->ToString(), "[[0,1,2,3]]");
}

// Names and messages are for people, and part of every module: long lists are told in the compact
// form that they have, or cut.
TEST(Groups, AlongAxis) {
  const auto text = [](const std::vector<int64_t>& group, int64_t world_size) {
    const auto all = Groups::AlongAxis(group, world_size);
    return all ? all->ToString() : "none";
  };
  EXPECT_EQ(text({1, 5}, 8), "[[0,4],[1,5],[2,6],[3,7]]");
  EXPECT_EQ(text({2, 3}, 8), "[[0,1],[2,3],[4,5],[6,7]]");
  EXPECT_EQ(text({4, 6}, 8), "[[0,2],[1,3],[4,6],[5,7]]");
  EXPECT_EQ(text({0, 1, 2, 3}, 4), "[[0,1,2,3]]");
  EXPECT_EQ(text({0, 2, 4}, 6), "[[0,2,4],[1,3,5]]");
  // Across rows, not of one step, backwards, alone, in a world that it does not divide.
  for (const std::vector<int64_t>& group :
       std::vector<std::vector<int64_t>>{{1, 2}, {0, 1, 3}, {4, 0}, {3}, {2, 4}, {0, 3}}) {
    EXPECT_EQ(text(group, 8), "none");
  }
  // All members, and all beside them, have the same.
  for (int64_t stride : {1, 2, 4, 8}) {
    for (int64_t size : {2, 4}) {
      for (int64_t first = 0; first < 16; ++first) {
        std::vector<int64_t> group;
        for (int64_t i = 0; i < size; ++i) group.push_back(first + i * stride);
        const auto all = Groups::AlongAxis(group, 16);
        if (!all) continue;
        EXPECT_EQ(all->Of(first, 16), group);
        for (const auto& other : all->list()) EXPECT_EQ(*Groups::AlongAxis(other, 16), *all);
      }
    }
  }
}

TEST(Groups, LongListsAreShort) {
  Lists blocks, strided, reversed;
  for (int64_t rank = 0; rank < 4096; ++rank) {
    if (rank % 8 == 0) blocks.emplace_back();
    blocks.back().push_back(rank);
    if (rank < 512) strided.emplace_back();
    strided[rank % 512].push_back(rank);
    reversed.push_back({4095 - rank});
  }
  EXPECT_EQ(Groups(blocks).ToString(), "[512,8]<=[4096]");
  EXPECT_EQ(Groups(strided).ToString(), "[512,8]<=[8,512]T(1,0)");
  const std::string text = Groups(reversed).ToString();
  EXPECT_LT(text.size(), 220u);
  EXPECT_EQ(text.substr(0, 16), "[[4095],[4094],[");
  EXPECT_EQ(text.substr(text.size() - 4), "...]");
}

TEST(Groups, Proto) {
  const auto read = [](const Groups& groups, int64_t world_size) {
    return WireReader(groups.ToProto(world_size).Serialize());
  };
  const WireReader world = read(Groups(), 6).Sub(2);
  EXPECT_EQ(world.Int(1), 1);
  EXPECT_EQ(world.Int(2), 6);
  EXPECT_EQ(world.Packed(3), Dims({6}));
  EXPECT_EQ(world.Packed(4), Dims({0}));
  const WireReader strided = read(Groups(Lists{{0, 2, 4}, {1, 3, 5}}), 6).Sub(2);
  EXPECT_EQ(strided.Int(1), 2);
  EXPECT_EQ(strided.Int(2), 3);
  EXPECT_EQ(strided.Packed(3), Dims({3, 2}));
  EXPECT_EQ(strided.Packed(4), Dims({1, 0}));
  const WireReader listed = read(Groups(Lists{{0, 3}, {1, 2}}), 4);
  EXPECT_FALSE(listed.Has(2));
  EXPECT_EQ(listed.Subs(1)[0].Packed(1), Dims({0, 3}));
  EXPECT_EQ(listed.Subs(1)[1].Packed(1), Dims({1, 2}));
}

}  // namespace
}  // namespace xla_cc
