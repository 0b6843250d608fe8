// In which forms all_gather and reduce_scatter go to a TPU. tests/compilers/test_kept.py asks its
// compiler about them.
#include "lowering/capability/kept.h"

#include "lowering/lower.h"
#include "tests/lowering/testing.h"

namespace xla_cc {
namespace {

using hlo::ElementType;
using hlo::Shape;

Lowered Of(const Collective& collective, const char* target, const Shape& operand) {
  const auto lowered = Lower(collective, {operand}, ParseTarget(target, 0).value());
  EXPECT_TRUE(lowered.ok()) << lowered.status().message();
  return lowered.value();
}

ReduceScatter Scatter(int64_t dim = 0) {
  ReduceScatter node;
  node.dim = dim;
  return node;
}

AllGather Gather(int64_t dim = 0) {
  AllGather node;
  node.dim = dim;
  return node;
}

using Opcodes = std::vector<std::string>;
using Ways = std::vector<std::string>;

TEST(Kept, VectorsGoInBlocks) {
  const Lowered scatter = Of(Scatter(), "tpu:v5e:2x4", {ElementType::kF32, {1 << 20}});
  EXPECT_EQ(scatter.opcodes, Opcodes({"reduce-scatter"}));
  EXPECT_EQ(scatter.ways, Ways({"reduce_scatter in blocks"}));
  EXPECT_EQ(scatter.rule, Rule::kNative);
  EXPECT_NE(scatter.text.find("f32[8,1024,128]"), std::string::npos) << scatter.text;
  EXPECT_EQ(scatter.text.find("pad"), std::string::npos);
  EXPECT_EQ(Of(Gather(), "tpu:v5e:2x4", {ElementType::kS8, {1 << 20}}).ways, Ways());
  EXPECT_EQ(Of(Gather(), "tpu:v5e:2x4", {ElementType::kS8, {(1 << 20) + 1}}).ways,
            Ways({"all_gather in blocks"}));
}

// What is filled up at its end reaches into what the next rank gets, which is handed back.
TEST(Kept, OddOnesAreFilledUp) {
  const Lowered rows = Of(Scatter(), "tpu:v5e:2x4", {ElementType::kF32, {8 * 250, 1000}});
  EXPECT_EQ(rows.opcodes, Opcodes({"reduce-scatter", "collective-permute"}));
  EXPECT_EQ(rows.ways, Ways({"reduce_scatter in blocks"}));
  EXPECT_NE(rows.text.find("f32[8,256,1000]"), std::string::npos) << rows.text;
  const Lowered columns = Of(Scatter(1), "tpu:v5e:2x4", {ElementType::kF32, {333, 8 * 1001}});
  EXPECT_EQ(columns.ways, Ways({"reduce_scatter filled up"}));
  EXPECT_NE(columns.text.find("f32[333,8192]"), std::string::npos) << columns.text;
  const Lowered vector = Of(Scatter(), "tpu:v5e:2x4", {ElementType::kF32, {8 * 262465}});
  EXPECT_EQ(vector.ways, Ways({"reduce_scatter in blocks"}));
  EXPECT_NE(vector.text.find("f32[8,2056,128]"), std::string::npos) << vector.text;
  EXPECT_EQ(vector.opcodes, Opcodes({"reduce-scatter", "collective-permute"}));
  // Seven times as much would go over the wire, or more than a rank has.
  EXPECT_EQ(Of(Scatter(), "tpu:v5e:2x4", {ElementType::kF32, {8, 65536}}).opcodes,
            Opcodes({"reduce-scatter"}));
}

// [n, 4] lies in memory as [4, n]: to turn it would take 32 times its memory.
TEST(Kept, NarrowRowsAreTheSameBytes) {
  const Lowered scatter = Of(Scatter(), "tpu:v5e:2x4", {ElementType::kF32, {8 * 65536, 4}});
  EXPECT_EQ(scatter.ways, Ways({"reduce_scatter in blocks"}));
  EXPECT_NE(scatter.text.find("f32[8,2048,128]"), std::string::npos) << scatter.text;
  EXPECT_EQ(scatter.text.find("pad"), std::string::npos);
  for (const Dims& others : {Dims{1 << 15, 8, 4}, Dims{8 * 900, 4}}) {
    EXPECT_EQ(Of(Scatter(), "tpu:v5e:2x4", {ElementType::kF32, others}).ways, Ways());
  }
}

TEST(Kept, AsTheyAre) {
  // Small; of integers, of which no reduce-scatter is kept; in whole tiles; on other devices.
  EXPECT_EQ(Of(Scatter(), "tpu:v5e:2x4", {ElementType::kF32, {8192}}).ways, Ways());
  EXPECT_EQ(Of(Scatter(), "tpu:v5e:2x4", {ElementType::kS32, {1 << 20}}).ways, Ways());
  EXPECT_EQ(Of(Scatter(), "tpu:v5e:2x4", {ElementType::kF16, {1 << 20}}).ways, Ways());
  EXPECT_EQ(Of(Scatter(), "tpu:v5e:2x4", {ElementType::kF32, {512, 100, 64}}).ways, Ways());
  EXPECT_EQ(Of(Scatter(), "tpu:v5e:2x4", {ElementType::kF32, {16384, 64, 1024}}).ways, Ways());
  EXPECT_EQ(Of(Scatter(1), "tpu:v5e:2x4", {ElementType::kF32, {2048, 1024}}).ways, Ways());
  EXPECT_EQ(Of(Scatter(), "gpu:h100x8", {ElementType::kF32, {1 << 20}}).ways, Ways());
  EXPECT_EQ(Of(Gather(), "gpu:h100x8", {ElementType::kF32, {262464}}).ways, Ways());
}

TEST(Kept, TheWorldOfATorusGoesInTwoStages) {
  const Lowered mesh = Of(Scatter(), "tpu:v5e:8x8", {ElementType::kF32, {64 * 2048, 128}});
  EXPECT_EQ(mesh.ways, Ways({"reduce_scatter in two stages in blocks"}));
  EXPECT_EQ(mesh.opcodes, Opcodes(2, "reduce-scatter"));
  // The fewest bytes on the wire, as with one instruction, and nothing is moved.
  EXPECT_EQ(mesh.cost.wire_bytes, int64_t{63} * 2048 * 128 * 4);
  const Lowered cube = Of(Gather(), "tpu:v5p:4x4x4", {ElementType::kBF16, {2048, 128}});
  EXPECT_EQ(cube.ways, Ways({"all_gather in two stages"}));
  EXPECT_EQ(cube.opcodes, Opcodes(2, "all-gather"));
  EXPECT_EQ(cube.cost.wire_bytes, int64_t{63} * 2048 * 128 * 2);
  for (const Lowered& lowered : {mesh, cube}) {
    for (const char* opcode : {" transpose(", " pad(", " concatenate(", " slice("}) {
      EXPECT_EQ(lowered.text.find(opcode), std::string::npos) << lowered.text;
    }
  }
  // A row is a group like any other.
  ReduceScatter row = Scatter();
  std::vector<std::vector<int64_t>> rows(8);
  for (int64_t rank = 0; rank < 64; ++rank) rows[rank / 8].push_back(rank);
  row.groups = Groups(rows);
  EXPECT_EQ(Of(row, "tpu:v5e:8x8", {ElementType::kF32, {16384, 1000}}).opcodes,
            Opcodes({"reduce-scatter"}));
}

// Of a list each goes alone, here in two stages.
TEST(Kept, ListsGoOneByOne) {
  const auto lowered =
      Lower(Gather(), {{ElementType::kBF16, {64, 128}}, {ElementType::kBF16, {8, 8, 128}}},
            ParseTarget("tpu:v5e:8x8", 0).value());
  ASSERT_TRUE(lowered.ok());
  EXPECT_EQ(lowered.value().opcodes, Opcodes(4, "all-gather"));
}

// Of 64 chips and more large ones are kept as they are, and small ones in two stages.
TEST(Kept, LargeOnesOfAListAreKept) {
  const Shape large{ElementType::kBF16, {1024, 1024}};
  const Shape small{ElementType::kBF16, {64, 1024}};
  const auto all = [&](const char* target) {
    return Lower(Gather(), {large, small, large}, ParseTarget(target, 0).value()).value();
  };
  EXPECT_EQ(all("tpu:v5e:8x8").opcodes, Opcodes(4, "all-gather"));  // two of them of the small one
  EXPECT_EQ(all("tpu:v5e:4x8").opcodes, Opcodes(3, "all-gather"));
  AllGather halves = Gather();
  std::vector<std::vector<int64_t>> groups(2);
  for (int64_t rank = 0; rank < 64; ++rank) groups[rank / 32].push_back(rank);
  halves.groups = Groups(groups);
  const auto some = Lower(halves, {large, large}, ParseTarget("tpu:v5e:8x8", 0).value());
  EXPECT_EQ(some.value().opcodes, Opcodes(2, "all-gather"));
}

// Dimensions of one element are none: [2048,512,1,1] is no array of narrow rows.
TEST(Kept, DimensionsOfOneElement) {
  for (const Dims& dims : {Dims{2048, 512}, Dims{2048, 512, 1, 1}, Dims{1, 2048, 512}}) {
    const Lowered scatter = Of(Scatter(dims[0] == 1), "tpu:v5e:2x4", {ElementType::kF32, dims});
    EXPECT_EQ(scatter.ways, Ways({"reduce_scatter in blocks"}));
  }
  EXPECT_EQ(Of(Gather(), "tpu:v5e:2x4", {ElementType::kF32, {300, 1}}).ways,
            Ways({"all_gather in blocks"}));
}

// Blocks are cut where tiles are: libtpu takes minutes to compile what is cut elsewhere.
TEST(Kept, OddRowsAreFilledUpOrTurned) {
  const Lowered rows = Of(Scatter(), "tpu:v5e:4x4", {ElementType::kBF16, {16 * 7, 100000}});
  EXPECT_NE(rows.text.find("bf16[16,7,100096]"), std::string::npos) << rows.text;
  const Lowered turned = Of(Scatter(1), "tpu:v5e:4x4", {ElementType::kBF16, {5200, 16 * 101}});
  EXPECT_NE(turned.text.find("bf16[16,101,5248]"), std::string::npos) << turned.text;
}

// What comes out does not depend on where ranks sit, only the way does.
TEST(Kept, OfRanksThatSitElsewhere) {
  Target target = ParseTarget("tpu:v5e:4x4", 0).value();
  const Shape operand{ElementType::kF32, {16 * 2048, 128}};
  target.topology.chips = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};  // hosts of four
  const auto hosts = Lower(Scatter(), {operand}, target);
  ASSERT_TRUE(hosts.ok());
  EXPECT_EQ(hosts.value().opcodes, Opcodes(2, "reduce-scatter"));
  for (int64_t rank = 0; rank < 16; ++rank) target.topology.chips[rank] = rank * 5 % 16;
  const auto scattered = Lower(Scatter(), {operand}, target);
  ASSERT_TRUE(scattered.ok());
  EXPECT_EQ(scattered.value().opcodes, Opcodes({"reduce-scatter"}));
}

}  // namespace
}  // namespace xla_cc
