// Groups as boxes of chips, and what their links carry.
#include "lowering/model/torus.h"

#include "tests/lowering/testing.h"

namespace xla_cc {
namespace {

Topology Mesh(std::vector<Axis> axes, std::vector<int64_t> chips = {}) {
  Topology topology;
  topology.axes = std::move(axes);
  topology.chips = std::move(chips);
  return topology;
}

TEST(Topology, IsThatOfTheName) {
  const Topology mesh = ParseTarget("tpu:v5e:4x8", 0).value().topology;
  EXPECT_EQ(mesh, Mesh({{4, false}, {8, false}}));
  EXPECT_EQ(mesh.CoordinatesOf(6), Dims({2, 1}));
  EXPECT_EQ(ParseTarget("spmd:tpu:v5e:16x16", 0).value().topology, Mesh({{16, true}, {16, true}}));
  EXPECT_EQ(ParseTarget("tpu:v5p:2x4x8", 0).value().topology,
            Mesh({{2, false}, {4, false}, {8, false}}));
  EXPECT_EQ(ParseTarget("tpu:v5p:4x4x8", 0).value().topology,
            Mesh({{4, true}, {4, true}, {8, true}}));
  for (const char* name : {"tpu:v5e", "tpu", "cpu", "gpu:h100x8", "tpu:v9:4x4"}) {
    EXPECT_FALSE(ParseTarget(name, 16 / (name[0] == 'g' ? 2 : 1)).value().topology.known()) << name;
  }
}

TEST(Boxes, OfTheWorld) {
  const auto boxes = BoxesOf(Groups(), Mesh({{2, false}, {3, false}}), 6);
  ASSERT_TRUE(boxes);
  ASSERT_EQ(boxes->lines.size(), 2u);
  EXPECT_EQ(boxes->lines[0].size, 2);
  EXPECT_EQ(boxes->lines[1].size, 3);
  EXPECT_EQ(boxes->Hops(), 3);
}

TEST(Boxes, OfRanksThatSitElsewhere) {
  // Rank 0 is in the middle of a line of three.
  const auto boxes = BoxesOf(Groups(), Mesh({{3, false}}, {1, 2, 0}), 3);
  ASSERT_TRUE(boxes);
  EXPECT_DOUBLE_EQ(boxes->lines[0].load, 2);
  EXPECT_EQ(boxes->Hops(), 2);
}

TEST(Boxes, OfParts) {
  const Topology mesh = Mesh({{4, false}, {4, false}});
  // Two rows each; every second chip of a column.
  const auto rows =
      BoxesOf(Groups({{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}), mesh, 16);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->lines[1].size, 2);
  EXPECT_DOUBLE_EQ(rows->lines[1].load, 1);
  Lists list;
  for (int64_t rank = 0; rank < 8; ++rank) list.push_back({rank, rank + 8});
  const auto strided = BoxesOf(Groups(list), mesh, 16);
  ASSERT_TRUE(strided);
  ASSERT_EQ(strided->lines.size(), 1u);
  EXPECT_DOUBLE_EQ(strided->lines[0].load, 2);  // two groups share the links of a column
  EXPECT_EQ(strided->lines[0].hops, 2);
}

TEST(Boxes, NoneForOthers) {
  const Topology mesh = Mesh({{2, false}, {2, false}});
  EXPECT_FALSE(BoxesOf(Groups({{0, 3}, {1, 2}}), mesh, 4));  // diagonals
  EXPECT_FALSE(BoxesOf(Groups({{0, 1, 2}, {3}}), mesh, 4));  // of two sizes
  EXPECT_FALSE(BoxesOf(Groups({{0, 1}}), mesh, 4));          // two ranks in none
  EXPECT_FALSE(BoxesOf(Groups(), mesh, 5));                  // of another world
  EXPECT_FALSE(BoxesOf(Groups(), Topology(), 4));
  EXPECT_FALSE(
      BoxesOf(Groups({{0, 1}, {2, 3}, {4, 6}, {5, 7}}), Mesh({{2, false}, {4, false}}), 8));
}

TEST(Boxes, AreEvenIfStepsAreTheSame) {
  const Topology line = Mesh({{8, false}});
  EXPECT_TRUE(AreEvenBoxes(Groups(), line, 8));
  EXPECT_TRUE(AreEvenBoxes(Groups({{0, 1}, {2, 3}, {4, 5}, {6, 7}}), line, 8));
  EXPECT_TRUE(AreEvenBoxes(Groups({{0, 2, 4, 6}, {1, 3, 5, 7}}), line, 8));
  EXPECT_FALSE(AreEvenBoxes(Groups({{0, 7}, {1, 6}, {2, 5}, {3, 4}}), line, 8));
  EXPECT_FALSE(AreEvenBoxes(Groups({{0, 1, 3, 4}, {2, 5, 6, 7}}), line, 8));
  const Topology mesh = Mesh({{2, false}, {2, false}});
  EXPECT_FALSE(AreEvenBoxes(Groups({{0, 3}, {1, 2}}), mesh, 4));
  EXPECT_FALSE(AreEvenBoxes(Groups({{0, 1}, {2, 3}}), Topology(), 4));
}

// On a line one end gives to all others; around a ring half comes from either side.
TEST(Load, OfOneAxis) {
  EXPECT_DOUBLE_EQ(BoxesOf(Groups(), Mesh({{8, false}}), 8)->lines[0].load, 7);
  EXPECT_DOUBLE_EQ(BoxesOf(Groups(), Mesh({{8, true}}), 8)->lines[0].load, 3.5);
}

TEST(Load, IsTheLeastThereIs) {
  const auto of = [](std::vector<Axis> axes, int64_t world) {
    return BoxesOf(Groups(), Mesh(std::move(axes)), world)->Load();
  };
  // A corner has a link for each axis, and takes what 63 others give by these.
  EXPECT_DOUBLE_EQ(of({{8, false}, {8, false}}, 64), 63.0 / 2);
  EXPECT_NEAR(of({{4, false}, {8, false}}, 32), 31.0 / 2, 31.0 / 2 / 20);
  EXPECT_NEAR(of({{4, true}, {4, true}, {4, true}}, 64), 63.0 / 6, 63.0 / 6 / 20);
}

TEST(Neighbours, OfTheWorld) {
  const auto found = NeighboursOf(Groups(), Mesh({{4, false}, {2, false}}), 8);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->pairs.list(), Lists({{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(found->others.list(), Lists({{0, 2, 4, 6}, {1, 3, 5, 7}}));
  // In the order of the group.
  const auto turned =
      NeighboursOf(Groups({{7, 6, 5, 4, 3, 2, 1, 0}}), Mesh({{4, false}, {2, false}}), 8);
  ASSERT_TRUE(turned);
  EXPECT_EQ(turned->others.list(), Lists({{6, 4, 2, 0}, {7, 5, 3, 1}}));
  // A host has four chips of two rows.
  EXPECT_TRUE(NeighboursOf(Groups(), Mesh({{4, false}, {2, false}}, {0, 1, 4, 5, 2, 3, 6, 7}), 8));
}

TEST(Neighbours, NoneIfTheyDoNotSitSideBySide) {
  const Topology mesh = Mesh({{4, false}, {2, false}});
  EXPECT_FALSE(NeighboursOf(Groups({{0, 5, 2, 3, 4, 1, 6, 7}}), mesh, 8));
  EXPECT_FALSE(NeighboursOf(Groups(), Mesh({{4, false}, {2, false}}, {0, 5, 2, 3, 4, 1, 6, 7}), 8));
  EXPECT_FALSE(NeighboursOf(Groups(), Mesh({{3, false}, {3, false}}), 9));
  EXPECT_FALSE(NeighboursOf(Groups(), Mesh({{2, false}}), 2));
  EXPECT_FALSE(NeighboursOf(Groups(), Topology(), 8));
}

}  // namespace
}  // namespace xla_cc
