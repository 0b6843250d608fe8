#include "lowering/rules/by_rank.h"

#include <algorithm>

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

Value RowByRank(Computation& c, const Rows& rows) {
  const int64_t length = static_cast<int64_t>(rows[0].size());
  std::vector<int64_t> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  const Value rank = c.Convert(c.Rank(), ElementType::kS32);
  const Value start = c.Binary("multiply", rank, c.Scalar(ElementType::kS32, length));
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

Value ReorderBlocks(Computation& c, const Value& x, int64_t dim, const Rows& rows) {
  return TakeBlocks(c, x, dim, x.shape.dims[dim] / static_cast<int64_t>(rows[0].size()), rows);
}

namespace {

Value TakePlainBlocks(Computation& c, const Value& x, int64_t dim, int64_t size, const Rows& rows) {
  const bool same =
      std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return row == rows[0]; });
  Values parts;
  if (same) {
    for (int64_t block : rows[0]) {
      parts.push_back(c.Slice(x, dim, block * size, (block + 1) * size));
    }
    return c.Concatenate(parts, dim);
  }
  Rows offsets = rows;
  for (auto& row : offsets) {
    for (int64_t& block : row) block *= size;
  }
  const Value row = RowByRank(c, offsets);
  std::vector<int64_t> sizes = x.shape.dims;
  sizes[dim] = size;
  for (int64_t i = 0; i < static_cast<int64_t>(rows[0].size()); ++i) {
    const Value start = c.Reshape(c.Slice(row, 0, i, i + 1), {});
    parts.push_back(c.DynamicSlice(x, StartAt(c, x.shape, dim, start), sizes));
  }
  return c.Concatenate(parts, dim);
}

}  // namespace

Value TakeBlocks(Computation& c, const Value& x, int64_t dim, int64_t size, const Rows& rows) {
  return AsPlain(c, x,
                 [&](const Value& plain) { return TakePlainBlocks(c, plain, dim, size, rows); });
}

Rows ToRankOrder(const Groups& groups, int64_t world_size) {
  // Of a group [7, 3, 5], position 1 comes first: [1, 2, 0].
  std::vector<int64_t> straight(groups.Size(world_size));
  for (size_t i = 0; i < straight.size(); ++i) straight[i] = static_cast<int64_t>(i);
  Rows rows(world_size, straight);
  for (const auto& group : groups.Expanded(world_size)) {
    std::vector<int64_t> order = straight;
    std::sort(order.begin(), order.begin() + group.size(),
              [&](int64_t a, int64_t b) { return group[a] < group[b]; });
    for (int64_t rank : group) rows[rank] = order;
  }
  return rows;
}

Rows ToGroupOrder(const Groups& groups, int64_t world_size) {
  Rows rows = ToRankOrder(groups, world_size);
  for (auto& row : rows) {
    std::vector<int64_t> inverse(row.size());
    for (size_t i = 0; i < row.size(); ++i) inverse[row[i]] = static_cast<int64_t>(i);
    row = inverse;
  }
  return rows;
}

}  // namespace xla_cc
