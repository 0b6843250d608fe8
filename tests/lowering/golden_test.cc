// The HLO text of chosen calls, one file each in tests/golden/. `make golden` rewrites them.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/lowering/testing.h"

namespace xla_cc {
namespace {

namespace fs = std::filesystem;
using hlo::ElementType;
using hlo::Shape;

struct Case {
  std::string name;  // of the file, and of the test
  std::string target;
  Collective collective;
  std::vector<Shape> operands;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.target; }

constexpr char kTpu[] = "tpu:v5e:2x4";
constexpr char kGpu[] = "gpu:h100x8";
constexpr char kCpu[] = "cpu:4";
constexpr char kSpmd[] = "spmd:tpu:v5e:2x2";
constexpr char kSpmdCpu[] = "spmd:cpu:4";

std::vector<Case> Cases() {
  const std::vector<Shape> one = {F32({8, 4})};
  const std::vector<Shape> list = {F32({8}), {ElementType::kBF16, {8, 2}}, F32({16, 2})};
  const std::vector<Shape> truth = {{ElementType::kPred, {8}}};
  const std::vector<Shape> f8 = {{ElementType::kF8E4M3FN, {8}}};
  const std::vector<Shape> c64 = {{ElementType::kC64, {8}}};
  const std::vector<Shape> s64 = {{ElementType::kS64, {16}}};
  const Groups blocks(Lists{{0, 1, 2, 3}, {4, 5, 6, 7}});
  const Groups strided(Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  const Groups listed(Lists{{0, 7}, {1, 6}, {2, 5}, {3, 4}});
  const Pairs ring4 = Ring(4);
  const Pairs part4 = {{0, 1}, {1, 2}};
  std::vector<Case> cases = {
      // Each op as one instruction.
      {"all_gather_tpu", kTpu, AllGather{}, one},
      {"all_reduce_tpu", kTpu, AllReduce{}, one},
      {"reduce_scatter_tpu", kTpu, ReduceScatter{}, one},
      {"collective_permute_tpu", kTpu, CollectivePermute{Ring(8)}, one},
      {"all_to_all_tpu", kTpu, AllToAll{}, one},
      {"collective_broadcast_gpu", kGpu, CollectiveBroadcast{3, {}}, one},
      {"send_gpu", kGpu, Send{5, Ring(8, false)}, one},
      {"recv_gpu", kGpu, Recv{5, Ring(8, false)}, one},
      // Each op on CPU threads: in ordered calls, with a channel, or decomposed.
      {"all_gather_cpu", kCpu, AllGather{}, one},
      {"all_reduce_cpu", kCpu, AllReduce{}, one},
      {"reduce_scatter_cpu", kCpu, ReduceScatter{}, one},
      {"collective_permute_cpu", kCpu, CollectivePermute{ring4}, one},
      {"all_to_all_cpu", kCpu, AllToAll{}, one},
      {"collective_broadcast_cpu", kCpu, CollectiveBroadcast{3, {}}, one},
      {"send_cpu", kCpu, Send{5, ring4}, one},
      {"recv_cpu", kCpu, Recv{5, ring4}, one},
      // Each op between partitions: by channel and partition id.
      {"all_gather_spmd", kSpmd, AllGather{}, one},
      {"all_reduce_spmd", kSpmd, AllReduce{}, one},
      {"reduce_scatter_spmd", kSpmd, ReduceScatter{}, one},
      {"collective_permute_spmd", kSpmd, CollectivePermute{ring4}, one},
      {"all_to_all_spmd", kSpmd, AllToAll{}, one},
      {"collective_broadcast_spmd", kSpmd, CollectiveBroadcast{3, {}}, one},
      {"collective_permute_spmd_cpu", kSpmdCpu, CollectivePermute{ring4}, one},
      {"all_to_all_spmd_cpu", kSpmdCpu, AllToAll{}, one},
      {"uneven_all_to_all_spmd_cpu", kSpmdCpu, UnevenAllToAll{ExchangeOf(Groups(), 4, 8), {}}, one},
      {"all_reduce_list_spmd", kSpmd, AllReduce{}, list},
      // One rank, which has nobody to meet.
      {"all_gather_cpu_alone", "cpu:1", AllGather{}, one},
      // Decompositions elsewhere.
      {"collective_broadcast_tpu", kTpu, CollectiveBroadcast{3, {}}, one},
      {"recv_tpu", kTpu, Recv{5, Ring(8, false)}, one},
      {"reduce_scatter_s64_tpu", kTpu, ReduceScatter{}, s64},
      {"reduce_scatter_f8_gpu", kGpu, ReduceScatter{}, f8},
      {"all_reduce_f8_cpu", kCpu, AllReduce{}, f8},
      {"all_reduce_xor_cpu", kCpu, AllReduce{{ReduceKind::kXor}, {}}, {S32({8})}},
      {"all_reduce_and_gpu", kGpu, AllReduce{{ReduceKind::kAnd}, {}}, {S32({8})}},
      {"collective_broadcast_c64_cpu", kCpu, CollectiveBroadcast{}, c64},
      {"collective_broadcast_unequal_gpu", kGpu, CollectiveBroadcast{0, UnequalGroups(8)}, one},
      // Uneven sizes: each way.
      {"uneven_all_gather_tpu", kTpu, UnevenAllGather{{8, 3, 0, 1, 4, 2, 7, 5}, {}}, one},
      {"uneven_all_gather_groups_tpu", kTpu, UnevenAllGather{{8, 3, 0, 1, 4, 2, 7, 5}, blocks},
       one},
      {"uneven_all_gather_skewed_cpu",
       kCpu,
       UnevenAllGather{{1, 0, 1 << 20, 1}, {}},
       {F32({1 << 20, 4})}},
      {"uneven_reduce_scatter_tpu", kTpu, UnevenReduceScatter{{}, {0, 3, 0, 1, 1, 2, 0, 1}, {}},
       one},
      {"uneven_reduce_scatter_skewed_cpu",
       kCpu,
       UnevenReduceScatter{{}, {1, 0, 1 << 20, 1}, {}},
       {F32({(1 << 20) + 2, 4})}},
      {"uneven_all_to_all_gpu",
       kGpu,
       UnevenAllToAll{ExchangeOf(Groups(), 8, 8), {}},
       {F32({8, 4})}},
      {"uneven_all_to_all_unequal_tpu",
       kTpu,
       UnevenAllToAll{ExchangeOf(UnequalGroups(8), 8, 7), UnequalGroups(8)},
       {F32({7, 4})}},
      {"uneven_all_to_all_cpu", kCpu, UnevenAllToAll{ExchangeOf(Groups(), 4, 8), {}}, one},
      {"uneven_all_to_all_rounds_cpu",
       kCpu,
       UnevenAllToAll{{{1, 0, 0, 0}, {0, 0, 0, 1 << 20}, {0, 0, 0, 1}, {0, 1, 0, 0}}, {}},
       {F32({1 << 20, 4})}},
      // Lists.
      {"all_gather_list_tpu", kTpu, AllGather{}, list},
      {"all_reduce_list_tpu", kTpu, AllReduce{}, list},
      {"all_reduce_list_cpu", kCpu, AllReduce{}, list},
      {"reduce_scatter_list_tpu", kTpu, ReduceScatter{}, list},
      {"reduce_scatter_list_gpu", kGpu, ReduceScatter{}, list},
      {"reduce_scatter_rows_tpu",
       kTpu,
       ReduceScatter{},
       {F32({16, 3, 4}), F32({8 * 1024}), F32({24})}},
      {"all_gather_list_with_empty_tpu", kTpu, AllGather{}, {F32({0}), F32({2})}},
      // Groups: compact where they are regular.
      {"all_gather_blocks_tpu", kTpu, AllGather{0, blocks}, one},
      {"all_gather_strided_tpu", kTpu, AllGather{0, strided}, one},
      {"all_gather_listed_tpu", kTpu, AllGather{0, listed}, one},
      {"all_reduce_unequal_gpu", kGpu, AllReduce{{}, UnequalGroups(8)}, one},
      {"reduce_scatter_blocks_cpu", kCpu, ReduceScatter{{}, 0, 2, Groups(Lists{{0, 1}, {2, 3}})},
       one},
      {"collective_broadcast_second_of_groups_gpu", kGpu, CollectiveBroadcast{1, blocks}, one},
      // Forms of single ops.
      {"all_gather_scalar_tpu", kTpu, AllGather{}, {F32({})}},
      {"all_gather_last_dim_tpu", kTpu, AllGather{-1, {}}, one},
      {"all_to_all_split_first_tpu", kTpu, AllToAll{0, 1, {}, {}}, one},
      {"all_to_all_split_last_tpu", kTpu, AllToAll{1, 0, {}, {}}, {F32({3, 8})}},
      {"all_to_all_split_last_cpu", kCpu, AllToAll{1, 0, 4, {}}, one},
      {"collective_permute_part_tpu", kTpu, CollectivePermute{part4}, one},
      {"collective_permute_part_cpu", kCpu, CollectivePermute{part4}, one},
      // Reductions beyond the plain sum.
      {"all_reduce_product_tpu", kTpu, AllReduce{{ReduceKind::kProduct}, {}}, one},
      {"all_reduce_min_tpu", kTpu, AllReduce{{ReduceKind::kMin}, {}}, one},
      {"all_reduce_max_tpu", kTpu, AllReduce{{ReduceKind::kMax}, {}}, one},
      {"all_reduce_and_tpu", kTpu, AllReduce{{ReduceKind::kAnd}, {}}, truth},
      {"all_reduce_or_tpu", kTpu, AllReduce{{ReduceKind::kOr}, {}}, truth},
      {"all_reduce_xor_tpu", kTpu, AllReduce{{ReduceKind::kXor}, {}}, truth},
      {"all_reduce_average_tpu", kTpu, AllReduce{{ReduceKind::kAverage}, {}}, one},
      {"all_reduce_average_blocks_tpu", kTpu, AllReduce{{ReduceKind::kAverage}, blocks}, one},
      {"all_reduce_average_unequal_gpu", kGpu, AllReduce{{ReduceKind::kAverage}, UnequalGroups(8)},
       one},
      {"all_reduce_premultiplied_sum_tpu", kTpu,
       AllReduce{{ReduceKind::kPremultipliedSum, 1, 0.5}, {}}, one},
      {"reduce_scatter_scaled_tpu", kTpu, ReduceScatter{{ReduceKind::kSum, 0.1}, 0, {}, {}}, one},
  };
  return cases;
}

const char* Workspace() {
  return std::getenv("UPDATE_GOLDEN") ? std::getenv("BUILD_WORKSPACE_DIRECTORY") : nullptr;
}

class Golden : public testing::TestWithParam<Case> {};

TEST_P(Golden, Text) {
  const Case& c = GetParam();
  const std::string text = MustLower(c.collective, c.operands, TargetOf(c.target)).text;
  const fs::path file = fs::path("tests/golden") / (c.name + ".hlo");
  if (const char* workspace = Workspace()) {
    std::ofstream out(workspace / file);
    out << text;
    ASSERT_TRUE(out.flush().good()) << "cannot write " << workspace / file;
    return;
  }
  std::ifstream in(file);
  ASSERT_TRUE(in.good()) << file << " is missing. Write it with `make golden`, and read it.";
  std::stringstream golden;
  golden << in.rdbuf();
  // Google Test prints a diff of strings with several lines.
  EXPECT_EQ(golden.str(), text) << file << " is not what " << ToString(c.collective) << " on "
                                << c.target << " becomes. If that is wanted: `make golden`.";
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Golden, EveryFileBelongsToACase) {
  std::set<std::string> names;
  for (const Case& c : Cases()) names.insert(c.name + ".hlo");
  EXPECT_EQ(names.size(), Cases().size()) << "two cases of one name";
  const char* workspace = Workspace();
  for (const auto& entry :
       fs::directory_iterator(fs::path(workspace ? workspace : "") / "tests/golden")) {
    if (names.count(entry.path().filename().string()) != 0) continue;
    if (workspace) {
      fs::remove(entry.path());
    } else {
      ADD_FAILURE() << entry.path() << " belongs to no case. Remove it with `make golden`.";
    }
  }
}

}  // namespace
}  // namespace xla_cc
