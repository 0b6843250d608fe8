// Calls with fields of any kind: such as people make, and such as nobody should.
#pragma once

#include <limits>

#include "tests/dice/dice.h"
#include "tests/lowering/testing.h"

namespace xla_cc {

// Where numbers overflow, and around.
inline const std::vector<int64_t> kEdges = {-1,
                                            -2,
                                            -7,
                                            1 << 20,
                                            INT32_MAX,
                                            int64_t{1} << 31,
                                            int64_t{1} << 32,
                                            INT32_MIN,
                                            INT64_MAX,
                                            -INT64_MAX,
                                            INT64_MIN,
                                            INT64_MAX - 1,
                                            int64_t{1} << 62,
                                            int64_t{1} << 59,
                                            1 << 30,
                                            INT64_MAX / 2,
                                            INT64_MIN + 2,
                                            INT64_MIN / 2};

// Fills in the fields of a node. `wild`: how often one is nothing that anybody means, one in so
// many.
class RandomFields {
 public:
  RandomFields(Dice& dice, int64_t world_size, int64_t wild)
      : dice_(dice), world_(world_size), wild_(wild) {}

  void operator()(const char* name, int64_t& value) {
    const bool is_dim = std::string(name).find("dim") != std::string::npos;
    value = Wild() ? dice_.Of(kEdges) : is_dim ? dice_.Below(7) - 3 : dice_.Below(world_);
  }
  void operator()(const char*, std::optional<int64_t>& value) {
    if (Wild()) value = dice_.OneIn(2) ? dice_.Of(kEdges) : dice_.Below(9);
  }
  void operator()(const char* name, double& value) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    static const std::vector<double> kValues = {0,     -1,     2,      0.5,  1e-30, 1e39,
                                                1e308, 5e-324, -1e300, kInf, -kInf, std::nan("")};
    value = 1;
    // A factor belongs to one kind of reduction.
    const bool fits = name != std::string("factor") || kind_ == ReduceKind::kPremultipliedSum;
    if (Wild() || (fits && dice_.OneIn(3))) value = dice_.Of(kValues);
  }
  void operator()(const char*, ReduceKind& value) { value = kind_ = dice_.Of(kAllReduceKinds); }
  void operator()(const char*, Groups& value) { value = Groups(Wild() ? WildLists() : Parted()); }
  void operator()(const char*, Pairs& value) {
    std::vector<int64_t> targets = Ranks();
    dice_.Shuffle(targets);
    for (int64_t rank = 0; rank < world_; ++rank) {
      if (!dice_.OneIn(3)) value.push_back({rank, targets[static_cast<size_t>(rank)]});
    }
    dice_.Shuffle(value);
    if (Wild()) value.push_back({AnyRank(), AnyRank()});
  }
  void operator()(const char*, Sizes& value) { value = SomeSizes(); }
  void operator()(const char*, SizeMatrix& value) {
    value.resize(static_cast<size_t>(Wild() ? dice_.Below(world_ + 2) : world_));
    for (Sizes& row : value) row = SomeSizes();
  }

 private:
  bool Wild() { return dice_.OneIn(wild_); }
  int64_t AnyRank() { return dice_.OneIn(2) ? dice_.Below(world_ + 2) : dice_.Of(kEdges); }
  std::vector<int64_t> Ranks() const {
    std::vector<int64_t> ranks(static_cast<size_t>(world_));
    for (int64_t rank = 0; rank < world_; ++rank) ranks[static_cast<size_t>(rank)] = rank;
    return ranks;
  }
  Lists WildLists() {
    Lists lists(static_cast<size_t>(dice_.Below(4)));
    for (auto& group : lists) {
      for (int64_t left = dice_.Below(4); left > 0; --left) group.push_back(AnyRank());
    }
    return lists;
  }
  // Of one size or of several, of all ranks or of some, in their order or in another.
  Lists Parted() {
    if (dice_.OneIn(3)) return {};
    std::vector<int64_t> ranks = Ranks();
    if (dice_.OneIn(2)) dice_.Shuffle(ranks);
    if (dice_.OneIn(4)) ranks.resize(static_cast<size_t>(1 + dice_.Below(world_)));
    const size_t most = static_cast<size_t>(1 + dice_.Below(world_));
    const bool even = dice_.OneIn(2);
    Lists lists;
    for (int64_t rank : ranks) {
      const bool full =
          !lists.empty() && (lists.back().size() == most || (!even && dice_.OneIn(3)));
      if (lists.empty() || full) lists.emplace_back();
      lists.back().push_back(rank);
    }
    return lists;
  }
  Sizes SomeSizes() {
    Sizes sizes(static_cast<size_t>(Wild() ? dice_.Below(world_ + 3) : world_));
    for (int64_t& size : sizes) size = dice_.OneIn(8 * wild_) ? dice_.Of(kEdges) : dice_.Below(5);
    return sizes;
  }

  Dice& dice_;
  const int64_t world_;
  const int64_t wild_;
  ReduceKind kind_ = ReduceKind::kSum;
};

inline Collective RandomCollective(Dice& dice, int64_t world_size, int64_t wild) {
  Collective collective;
  switch (dice.Of(kAllOps)) {
#define COLLECTIVE(Type, name) \
  case Op::k##Type:            \
    collective = Type{};       \
    break;
#include "lowering/collectives.def"
#undef COLLECTIVE
  }
  Visit(collective, [&](auto& node) {
    RandomFields fields(dice, world_size, wild);
    std::decay_t<decltype(node)>::Fields(node, fields);
  });
  return collective;
}

// The rows that operands of a call have to have, where it says so.
inline std::optional<int64_t> RowsOf(const Collective& collective, int64_t world_size) {
  Collective copy = collective;
  // What is out of range is refused before, and not added up.
  const auto is_sum = [&](const Sizes& sizes, const Groups& groups) {
    int64_t largest = 0;
    for (const auto& group : groups.Expanded(world_size)) {
      int64_t sum = 0;
      for (int64_t rank : group) sum += sizes[static_cast<size_t>(rank)];
      largest = std::max(largest, sum);
    }
    return largest;
  };
  if (auto* gather = std::get_if<UnevenAllGather>(&copy)) {
    if (ResolveSizes("", world_size, gather->sizes, &gather->groups).ok()) {
      return Largest(gather->sizes);
    }
  }
  if (auto* scatter = std::get_if<UnevenReduceScatter>(&copy)) {
    if (ResolveSizes("", world_size, scatter->sizes, &scatter->groups).ok()) {
      return is_sum(scatter->sizes, scatter->groups);
    }
  }
  if (auto* exchange = std::get_if<UnevenAllToAll>(&copy)) {
    if (ResolveSizes("", world_size, exchange->sizes, &exchange->groups).ok()) {
      return Largest(Sums(exchange->sizes));
    }
  }
  return std::nullopt;
}

inline std::vector<hlo::Shape> RandomOperands(Dice& dice, const Collective& collective,
                                              int64_t world_size, int64_t wild) {
  const std::vector<int64_t> sizes = {0, 1, 2, 3, 8, 128, world_size, world_size, 2 * world_size};
  const std::optional<int64_t> rows = RowsOf(collective, world_size);
  std::vector<hlo::Shape> operands(static_cast<size_t>(dice.OneIn(wild) ? 0 : 1 + dice.Below(3)));
  for (hlo::Shape& shape : operands) {
    shape.type = dice.Of(kAllTypes);
    shape.dims.resize(static_cast<size_t>(dice.OneIn(wild) ? dice.Below(9) : 1 + dice.Below(3)));
    for (int64_t& dim : shape.dims) dim = dice.OneIn(2 * wild) ? dice.Of(kEdges) : dice.Of(sizes);
    if (rows && !shape.dims.empty() && !dice.OneIn(wild)) shape.dims[0] = *rows;
  }
  return operands;
}

}  // namespace xla_cc
