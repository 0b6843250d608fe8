// What the tests of lowering/ share: targets, shapes, and calls to sweep over.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lowering/lower.h"

namespace xla_cc {

using Lists = std::vector<std::vector<int64_t>>;
using Dims = std::vector<int64_t>;

inline const std::vector<hlo::ElementType> kAllTypes = {
#define TYPE(enumerator, number, name, bits, type_class, torch) hlo::ElementType::enumerator,
#include "lowering/hlo/element_types.def"
#undef TYPE
};

// One for each way in which types are treated differently: enough for sweeps over everything else.
inline const std::vector<hlo::ElementType> kTypicalTypes = {
    hlo::ElementType::kPred,  hlo::ElementType::kS32, hlo::ElementType::kU64,
    hlo::ElementType::kBF16,  hlo::ElementType::kF64, hlo::ElementType::kC64,
    hlo::ElementType::kF8E5M2};

inline const std::vector<ReduceKind> kAllReduceKinds = {
#define REDUCE(enumerator, name, opcode) ReduceKind::enumerator,
    XLA_CC_REDUCE_KINDS(REDUCE)
#undef REDUCE
};

inline const std::vector<Op> kAllOps = {
#define COLLECTIVE(Type, name) Op::k##Type,
#include "lowering/collectives.def"
#undef COLLECTIVE
};

inline Target TargetOf(const std::string& name, int64_t world_size = 0) {
  const Result<Target> target = ParseTarget(name, world_size);
  EXPECT_TRUE(target.ok()) << name;
  return target.ok() ? target.value() : Target();
}

inline Target Cpu4() { return TargetOf("cpu", 4); }
inline Target Pod4() { return TargetOf("pod", 4); }
inline Target Tpu8() { return TargetOf("tpu:v5e:2x4"); }
inline Target Gpu8() { return TargetOf("gpu:h100x8"); }

inline hlo::Shape F32(const Dims& dims) { return {hlo::ElementType::kF32, dims}; }
inline hlo::Shape S32(const Dims& dims) { return {hlo::ElementType::kS32, dims}; }

// The error of a call that must be refused.
template <class T>
std::string MessageOf(const Result<T>& result) {
  EXPECT_FALSE(result.ok()) << "was not refused";
  return result.ok() ? "" : result.status().message();
}

// What a call that must not be refused becomes.
inline Lowered MustLower(const Collective& collective, const std::vector<hlo::Shape>& operands,
                         const Target& target, const CallSite& site = {},
                         std::optional<Rule> forced = std::nullopt) {
  const Result<Lowered> lowered = Lower(collective, operands, target, site, forced);
  EXPECT_TRUE(lowered.ok()) << lowered.status().message();
  return lowered.ok() ? lowered.value() : Lowered();
}

inline std::string Join(const std::vector<std::string>& parts, const std::string& comma = " ") {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : comma) + part;
  return out;
}

inline std::string ToString(const std::vector<hlo::Shape>& shapes) {
  std::vector<std::string> parts;
  for (const hlo::Shape& shape : shapes) parts.push_back(shape.ToString());
  return Join(parts);
}

// A call, with the type of its first operand left to the test.
struct Sample {
  std::string name;
  Collective collective;
  Dims dims;
};

// The pairs of a ring, which form a permutation, or those of an open one.
inline Pairs Ring(int64_t world_size, bool closed = true) {
  Pairs pairs;
  for (int64_t rank = 0; rank < world_size; ++rank)
    pairs.push_back({rank, (rank + 1) % world_size});
  if (!closed && world_size > 1) pairs.pop_back();
  return pairs;
}

// The groups of a world of one rank or an even number of them, in each form that there is.
inline std::vector<Groups> UniformGroups(int64_t world_size) {
  if (world_size == 1) return {Groups(), Groups(Lists{{0}})};
  const int64_t half = world_size / 2;
  Lists blocks(2), strided(half), mirrored(half), alone;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    blocks[rank / half].push_back(rank);
    strided[rank % half].push_back(rank);
    alone.push_back({rank});
    if (rank < half) mirrored[rank] = {world_size - 1 - rank, rank};
  }
  return {Groups(), Groups(blocks), Groups(strided), Groups(mirrored), Groups(alone)};
}

// Unequal groups: all ranks but the last, and the last.
inline Groups UnequalGroups(int64_t world_size) {
  if (world_size == 1) return Groups();
  Lists lists(2);
  for (int64_t rank = 0; rank < world_size; ++rank) {
    lists[rank + 1 < world_size ? 0 : 1].push_back(rank);
  }
  return Groups(lists);
}

// Groups of two in which the last ranks are not, and one of which is turned around.
inline Groups PartialGroups(int64_t world_size) {
  if (world_size < 3) return Groups();
  Lists lists;
  for (int64_t rank = 0; rank + 3 < world_size; rank += 2) lists.push_back({rank, rank + 1});
  if (lists.empty()) lists.push_back({0, 1});
  std::swap(lists.back()[0], lists.back()[1]);
  return Groups(lists);
}

// Sizes in a group of that many rows together: the first member has one less than the others, the
// last one more.
inline Sizes SplitOf(const Groups& groups, int64_t world_size, int64_t rows) {
  Sizes sizes(world_size, 0);
  for (const auto& group : groups.Expanded(world_size)) {
    const int64_t members = static_cast<int64_t>(group.size());
    for (int64_t rank : group) sizes[rank] = rows / members;
    sizes[group[0]] -= 1;
    sizes[group.back()] += rows % members + 1;
  }
  return sizes;
}

// Between the members of each group: `rows` of each in all, the most to the last.
inline SizeMatrix ExchangeOf(const Groups& groups, int64_t world_size, int64_t rows) {
  SizeMatrix sizes(world_size, Sizes(world_size, 0));
  for (const auto& group : groups.Expanded(world_size)) {
    const Sizes split = SplitOf(groups, world_size, rows);
    for (int64_t from : group) {
      for (int64_t to : group) sizes[from][to] = split[to];
    }
  }
  return sizes;
}

// One call of every op in every form of groups, pairs and reduction that it has.
inline std::vector<Sample> Samples(int64_t world_size) {
  const Dims cube = {world_size, 2 * world_size, 3};
  std::vector<Sample> samples = {
      {"permute", CollectivePermute{Ring(world_size)}, cube},
      {"permute_part", CollectivePermute{Ring(world_size, false)}, cube},
      {"permute_none", CollectivePermute{}, cube},
      {"send", Send{7, Ring(world_size, false)}, cube},
      {"recv", Recv{7, Ring(world_size, false)}, cube},
      {"gather_scalar", AllGather{}, {}},
      {"reduce_scalar", AllReduce{}, {}},
      {"broadcast_unequal", CollectiveBroadcast{0, UnequalGroups(world_size)}, cube},
  };
  for (const ReduceKind kind : kAllReduceKinds) {
    const double factor = kind == ReduceKind::kPremultipliedSum ? 3 : 1;
    samples.push_back({"reduce_" + Name(kind), AllReduce{{kind, 1, factor}, {}}, cube});
    samples.push_back({"reduce_unequal_" + Name(kind),
                       AllReduce{{kind, 1, factor}, UnequalGroups(world_size)}, cube});
    samples.push_back({"scatter_" + Name(kind), ReduceScatter{{kind, 1, factor}, 0, {}, {}}, cube});
  }
  int form = 0;
  std::vector<Groups> forms = UniformGroups(world_size);
  forms.push_back(PartialGroups(world_size));
  for (const Groups& groups : forms) {
    const std::string suffix = std::to_string(form++);
    samples.push_back({"gather_" + suffix, AllGather{1, groups}, cube});
    samples.push_back({"reduce_" + suffix, AllReduce{{}, groups}, cube});
    samples.push_back({"scatter_" + suffix, ReduceScatter{{}, 1, {}, groups}, cube});
    samples.push_back({"exchange_" + suffix, AllToAll{1, 1, {}, groups}, cube});
    samples.push_back({"exchange_up_" + suffix, AllToAll{0, 2, {}, groups}, cube});
    samples.push_back({"exchange_down_" + suffix, AllToAll{1, 0, {}, groups}, cube});
    samples.push_back({"broadcast_" + suffix, CollectiveBroadcast{0, groups}, cube});
  }
  // Twice the world of rows; in groups of the forms that make a difference.
  const int64_t rows = 2 * world_size;
  for (const Groups& groups :
       {Groups(), forms.back(), UnequalGroups(world_size), PartialGroups(world_size)}) {
    const std::string suffix = std::to_string(form++);
    Sizes ascending(world_size, 0);
    for (const auto& group : groups.Expanded(world_size)) {
      for (int64_t rank : group) ascending[rank] = 2 * rank;
      ascending[group[0]] = rows;
    }
    const Sizes split = SplitOf(groups, world_size, rows);
    const SizeMatrix exchange = ExchangeOf(groups, world_size, rows);
    samples.push_back({"uneven_gather_" + suffix, UnevenAllGather{ascending, groups}, {rows, 3}});
    samples.push_back(
        {"uneven_scatter_" + suffix, UnevenReduceScatter{{}, split, groups}, {rows, 3}});
    samples.push_back({"uneven_exchange_" + suffix, UnevenAllToAll{exchange, groups}, {rows, 3}});
  }
  // The longest of unequal groups has one rank less than the world.
  const Groups unequal = UnequalGroups(world_size);
  const Dims cut = {std::max<int64_t>(world_size - 1, 1), 3};
  samples.push_back({"gather_unequal", AllGather{0, unequal}, cut});
  samples.push_back({"scatter_unequal", ReduceScatter{{}, 0, {}, unequal}, cut});
  samples.push_back({"exchange_unequal", AllToAll{0, 1, {}, unequal}, cut});
  return samples;
}

}  // namespace xla_cc
