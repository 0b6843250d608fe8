#include "lowering/rules/by_rank.h"

#include <algorithm>
#include <utility>

#include "lowering/rules/bits.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

Value ByRank(Computation& c, const std::vector<int64_t>& table) {
  const Value rank = c.Convert(c.Rank(), ElementType::kS32);
  return c.Reshape(c.DynamicSlice(c.Table(table), {rank}, {1}), {});
}

namespace {

constexpr int64_t kWorthALookUp = 1024;  // numbers less in a module's tables

}  // namespace

Value RowByRank(Computation& c, const RankRows& rows) {
  const int64_t length = static_cast<int64_t>(rows.length());
  const int64_t different = static_cast<int64_t>(rows.different());
  // A row for each rank, or those that differ and each rank's number among them: another look-up.
  const int64_t spared = (rows.world_size() - different) * length - rows.world_size();
  const bool shares = spared >= kWorthALookUp;
  std::vector<int64_t> flat;
  for (int64_t i = 0; i < (shares ? different : rows.world_size()); ++i) {
    const Row& row = shares ? rows.Different(i) : rows[i];
    flat.insert(flat.end(), row.begin(), row.end());
  }
  const Value number = shares ? ByRank(c, rows.Numbers()) : c.Convert(c.Rank(), ElementType::kS32);
  const Value start = c.Binary("multiply", number, c.Scalar(ElementType::kS32, length));
  return c.DynamicSlice(c.Table(flat), {start}, {length});
}

Value ChooseByRank(Computation& c, const std::vector<int64_t>& choose, const Value& x,
                   const Value& other) {
  const Value chosen = c.Convert(ByRank(c, choose), ElementType::kPred);
  const Value mask = c.Fill(chosen, {ElementType::kPred, x.shape.dims});
  return AsPlain(c, x, [&](const Value& plain) {
    return c.Select(mask, plain, c.BitcastConvert(other, plain.shape.type));
  });
}

Value KeepByRank(Computation& c, const Value& x, const std::vector<int64_t>& keep) {
  if (std::find(keep.begin(), keep.end(), 0) == keep.end()) return x;
  return ChooseByRank(c, keep, x, c.Zeros(x.shape));
}

std::vector<int64_t> OffsetsOf(std::vector<int64_t> numbers, int64_t size) {
  for (int64_t& number : numbers) number *= size;
  return numbers;
}

Value AsBlock(Computation& c, const Value& x) {
  std::vector<int64_t> dims = x.shape.dims;
  dims.insert(dims.begin(), 1);
  return c.Reshape(x, dims);
}

namespace {

// Indices that are zero but for one dimension.
Values StartAt(Computation& c, const Shape& shape, int64_t dim, const Value& start) {
  Values starts(shape.dims.size(), c.Scalar(ElementType::kS32, 0));
  starts[dim] = start;
  return starts;
}

}  // namespace

Value BlockByRank(Computation& c, const Value& x, int64_t dim, int64_t size,
                  const std::vector<int64_t>& offsets) {
  std::vector<int64_t> sizes = x.shape.dims;
  sizes[dim] = size;
  return AsPlain(c, x, [&](const Value& plain) {
    return c.DynamicSlice(plain, StartAt(c, x.shape, dim, ByRank(c, offsets)), sizes);
  });
}

Value WithBlockByRank(Computation& c, const Value& x, const Value& block, int64_t dim,
                      const std::vector<int64_t>& offsets) {
  return AsPlain(c, x, [&](const Value& plain) {
    return c.DynamicUpdateSlice(plain, c.BitcastConvert(block, plain.shape.type),
                                StartAt(c, x.shape, dim, ByRank(c, offsets)));
  });
}

Value ReorderBlocks(Computation& c, const Value& x, int64_t dim, const RankRows& rows) {
  return TakeBlocks(c, x, dim, x.shape.dims[dim] / static_cast<int64_t>(rows.length()), rows);
}

namespace {

Value TakePlainBlocks(Computation& c, const Value& x, int64_t dim, int64_t size,
                      const RankRows& rows) {
  Values parts;
  if (rows.AllSame()) {
    for (int64_t block : rows[0]) {
      parts.push_back(c.Slice(x, dim, block * size, (block + 1) * size));
    }
    return c.Concatenate(parts, dim);
  }
  const Value row =
      RowByRank(c, rows.Changed([&](const Row& blocks) { return OffsetsOf(blocks, size); }));
  std::vector<int64_t> sizes = x.shape.dims;
  sizes[dim] = size;
  for (int64_t i = 0; i < static_cast<int64_t>(rows.length()); ++i) {
    const Value start = c.Reshape(c.Slice(row, 0, i, i + 1), {});
    parts.push_back(c.DynamicSlice(x, StartAt(c, x.shape, dim, start), sizes));
  }
  return c.Concatenate(parts, dim);
}

}  // namespace

Value TakeBlocks(Computation& c, const Value& x, int64_t dim, int64_t size, const RankRows& rows) {
  return AsPlain(c, x,
                 [&](const Value& plain) { return TakePlainBlocks(c, plain, dim, size, rows); });
}

RankRows ToRankOrder(const Groups& groups, int64_t world_size) {
  // Of a group [7, 3, 5], position 1 comes first: [1, 2, 0].
  Row straight(groups.Size(world_size));
  for (size_t i = 0; i < straight.size(); ++i) straight[i] = static_cast<int64_t>(i);
  RankRows rows(world_size, straight);
  for (const auto& group : groups.Expanded(world_size)) {
    Row order = straight;
    std::sort(order.begin(), order.begin() + group.size(),
              [&](int64_t a, int64_t b) { return group[a] < group[b]; });
    rows.Give(group, std::move(order));
  }
  return rows;
}

RankRows ToGroupOrder(const Groups& groups, int64_t world_size) {
  return ToRankOrder(groups, world_size).Changed([](const Row& row) {
    Row inverse(row.size());
    for (size_t i = 0; i < row.size(); ++i) inverse[row[i]] = static_cast<int64_t>(i);
    return inverse;
  });
}

}  // namespace xla_cc
