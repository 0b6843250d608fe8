#include "lowering/rules/uneven_rows.h"

#include <algorithm>
#include <utility>

#include "lowering/rules/bits.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

namespace {

// Columns of a table of rows, looked up by the rank: where a block begins.
class Lookup {
 public:
  Lookup(Computation& c, const RankRows& rows) : c_(c), same_(rows.AllSame()), first_(rows[0]) {
    if (!same_) row_ = RowByRank(c, rows);
  }
  Values StartAt(size_t i, const Shape& shape) const {
    Values starts(shape.dims.size(), c_.Scalar(ElementType::kS32, 0));
    const int64_t at = static_cast<int64_t>(i);
    starts[0] = same_ ? c_.Scalar(ElementType::kS32, static_cast<double>(first_[i]))
                      : c_.Reshape(c_.Slice(row_, 0, at, at + 1), {});
    return starts;
  }

 private:
  Computation& c_;
  bool same_;
  std::vector<int64_t> first_;
  Value row_;
};

// How many rows there must be for `most[i]` rows from starts[.][i] on.
int64_t End(const RankRows& starts, const std::vector<int64_t>& most) {
  int64_t end = 0;
  for (size_t number = 0; number < starts.different(); ++number) {
    const Row& row = starts.Different(number);
    for (size_t i = 0; i < row.size(); ++i) {
      if (most[i] > 0) end = std::max(end, row[i] + most[i]);
    }
  }
  return end;
}

// The same runs on every rank: no table, and neighbours are one slice.
Value PackFixedRows(Computation& c, const Value& x, const std::vector<int64_t>& starts,
                    const std::vector<int64_t>& sizes, int64_t rows) {
  Values parts;
  for (size_t i = 0; i < sizes.size();) {
    const int64_t start = starts[i];
    int64_t end = start;
    for (; i < sizes.size() && (starts[i] == end || sizes[i] == 0); ++i) end += sizes[i];
    if (end > start) parts.push_back(c.Slice(x, 0, start, end));
  }
  if (parts.empty()) return c.Zeros(WithRows(x.shape, rows));
  return WithRows(c, c.Concatenate(parts, 0), rows);
}

}  // namespace

Shape WithRows(const Shape& shape, int64_t rows) {
  Shape other = shape;
  other.dims[0] = rows;
  return other;
}

std::vector<int64_t> Most(const RankRows& sizes) {
  std::vector<int64_t> most = sizes[0];
  for (size_t number = 0; number < sizes.different(); ++number) {
    const Row& row = sizes.Different(number);
    for (size_t i = 0; i < row.size(); ++i) most[i] = std::max(most[i], row[i]);
  }
  return most;
}

Value JoinRows(Computation& c, Values parts) {
  if (parts.size() == 1) return parts[0];
  const ElementType type = parts[0].shape.type;
  for (Value& part : parts) part = c.BitcastConvert(part, PlainType(type));
  return c.BitcastConvert(c.Concatenate(parts, 0), type);
}

Value WithRows(Computation& c, const Value& x, int64_t rows) {
  const int64_t missing = rows - x.shape.dims[0];
  return missing > 0 ? c.Pad(x, 0, missing) : c.Slice(x, 0, 0, rows);
}

Value KeepFirstRows(Computation& c, const Value& x, const Sizes& rows) {
  const bool all =
      std::all_of(rows.begin(), rows.end(), [&](int64_t n) { return n >= x.shape.dims[0]; });
  if (all) return x;
  const bool same = std::all_of(rows.begin(), rows.end(), [&](int64_t n) { return n == rows[0]; });
  const Shape indices{ElementType::kS32, x.shape.dims};
  const Value limit =
      same ? c.Scalar(ElementType::kS32, static_cast<double>(rows[0])) : ByRank(c, rows);
  const Value mask = c.Compare("LT", c.Iota(indices, 0), c.Fill(limit, indices));
  const ElementType type = x.shape.type;
  const Value bits = c.BitcastConvert(x, PlainType(type));
  return c.BitcastConvert(c.Select(mask, bits, c.Zeros(bits.shape)), type);
}

Value PackRows(Computation& c, const Value& x, const RankRows& starts, const RankRows& sizes,
               int64_t rows) {
  const ElementType type = x.shape.type;
  Value from = c.BitcastConvert(x, PlainType(type));
  if (starts.AllSame() && sizes.AllSame()) {
    const Value taken = PackFixedRows(c, from, starts[0], sizes[0], rows);
    return taken.id == from.id ? x : c.BitcastConvert(taken, type);
  }
  const RankRows targets = Starts(sizes);
  const std::vector<int64_t> most = Most(sizes);
  from = WithRows(c, from, std::max(x.shape.dims[0], End(starts, most)));
  Value to = c.Zeros(WithRows(from.shape, std::max(rows, End(targets, most))));
  const Lookup start(c, starts);
  const Lookup target(c, targets);
  // In this order: what is copied behind the end of a run lies where the next one goes.
  for (size_t i = 0; i < most.size(); ++i) {
    if (most[i] == 0) continue;
    const Value run =
        c.DynamicSlice(from, start.StartAt(i, from.shape), WithRows(from.shape, most[i]).dims);
    to = c.DynamicUpdateSlice(to, run, target.StartAt(i, to.shape));
  }
  return c.BitcastConvert(KeepFirstRows(c, WithRows(c, to, rows), Sums(sizes)), type);
}

Value TakeEvenBlocks(Computation& c, const Value& x, const RankRows& starts, int64_t size) {
  const std::vector<int64_t> sizes(starts.length(), size);
  const ElementType type = x.shape.type;
  Value from = c.BitcastConvert(x, PlainType(type));
  from = WithRows(c, from, std::max(x.shape.dims[0], End(starts, sizes)));
  Values blocks;
  const Lookup start(c, starts);
  for (size_t i = 0; i < sizes.size(); ++i) {
    blocks.push_back(starts.AllSame() ? c.Slice(from, 0, starts[0][i], starts[0][i] + size)
                                      : c.DynamicSlice(from, start.StartAt(i, from.shape),
                                                       WithRows(from.shape, size).dims));
  }
  return c.BitcastConvert(c.Concatenate(blocks, 0), type);
}

RankRows EvenStarts(int64_t world_size, int64_t count, int64_t size) {
  Row starts;
  for (int64_t i = 0; i < count; ++i) starts.push_back(i * size);
  return RankRows(world_size, std::move(starts));
}

}  // namespace xla_cc
