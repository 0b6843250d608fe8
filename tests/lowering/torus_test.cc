// Groups as boxes of chips, and what their links carry.
#include "lowering/model/torus.h"

#include <algorithm>
#include <numeric>

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
            Mesh({{2, false}, {4, true}, {8, true}}));
  for (const char* name : {"tpu:v5e", "tpu", "cpu", "gpu:h100x8", "tpu:v9:4x4"}) {
    EXPECT_FALSE(ParseTarget(name, 16 / (name[0] == 'g' ? 2 : 1)).value().topology.known()) << name;
  }
}

TEST(Boxes, OfTheWorld) {
  const auto boxes = BoxesOf(Groups(), Mesh({{2, false}, {3, false}}), 6);
  ASSERT_TRUE(boxes);
  EXPECT_TRUE(boxes->InOrder());
  EXPECT_EQ(boxes->Members(), 6);
  ASSERT_EQ(boxes->stages.size(), 2u);
  EXPECT_EQ(boxes->stages[0].groups.list(), Lists({{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(boxes->stages[1].groups.list(), Lists({{0, 2, 4}, {1, 3, 5}}));
  EXPECT_EQ(boxes->Hops(), 3);
}

TEST(Boxes, OfRanksThatSitElsewhere) {
  // Rank 0 is in the middle of a line of three.
  const auto boxes = BoxesOf(Groups(), Mesh({{3, false}}, {1, 2, 0}), 3);
  ASSERT_TRUE(boxes);
  EXPECT_FALSE(boxes->InOrder());
  EXPECT_EQ(boxes->places, Lists({{1, 2, 0}}));
  EXPECT_EQ(boxes->stages[0].groups.list(), Lists({{2, 0, 1}}));
}

TEST(Boxes, OfParts) {
  const Topology mesh = Mesh({{4, false}, {4, false}});
  // Two rows each; every second chip of a column.
  const auto rows =
      BoxesOf(Groups({{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}), mesh, 16);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->stages[1].size, 2);
  EXPECT_DOUBLE_EQ(rows->stages[1].load, 1);
  Lists list;
  for (int64_t rank = 0; rank < 8; ++rank) list.push_back({rank, rank + 8});
  const auto strided = BoxesOf(Groups(list), mesh, 16);
  ASSERT_TRUE(strided);
  ASSERT_EQ(strided->stages.size(), 1u);
  EXPECT_DOUBLE_EQ(strided->stages[0].load, 2);  // two groups share the links of a column
  EXPECT_EQ(strided->stages[0].hops, 2);
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
  EXPECT_DOUBLE_EQ(BoxesOf(Groups(), Mesh({{8, false}}), 8)->stages[0].load, 7);
  EXPECT_DOUBLE_EQ(BoxesOf(Groups(), Mesh({{8, true}}), 8)->stages[0].load, 3.5);
}

TEST(Load, OfPartsIsTheLeastThereIs) {
  const auto square = BoxesOf(Groups(), Mesh({{8, false}, {8, false}}), 64);
  const auto oblong = BoxesOf(Groups(), Mesh({{4, false}, {8, false}}), 32);
  const auto cube = BoxesOf(Groups(), Mesh({{4, true}, {4, true}, {4, true}}), 64);
  for (const bool scatters : {false, true}) {
    // A corner has a link for each axis, and takes what 63 others give by these.
    EXPECT_DOUBLE_EQ(square->Load(square->Shares(96, true, scatters), scatters), 63.0 / 2);
    EXPECT_NEAR(oblong->Load(oblong->Shares(96, true, scatters), scatters), 31.0 / 2,
                31.0 / 2 / 50);
    EXPECT_NEAR(cube->Load(cube->Shares(96, true, scatters), scatters), 63.0 / 6, 63.0 / 6 / 50);
    EXPECT_DOUBLE_EQ(square->Load(square->Shares(96, false, scatters), scatters), 56);
  }
}

TEST(Shares, AreWholeUnits) {
  const auto cube = BoxesOf(Groups(), Mesh({{4, true}, {4, true}, {4, true}}), 64);
  EXPECT_EQ(cube->Shares(1, true, false).size(), 3);
  for (const int64_t units : {1, 2, 3, 5, 16, 97, 1000}) {
    const std::vector<int64_t> shares = cube->Shares(units, true, true);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t{0}), units);
    EXPECT_LE(*std::max_element(shares.begin(), shares.end()), units / 3 + 1 + units / 32) << units;
  }
}

}  // namespace
}  // namespace xla_cc
