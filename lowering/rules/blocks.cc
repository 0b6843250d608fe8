#include "lowering/rules/blocks.h"

namespace xla_cc {

using hlo::Computation;
using hlo::Shape;
using hlo::Value;

Value ToBlocks(Computation& c, const Value& x, int64_t dim, int64_t members) {
  std::vector<int64_t> part = x.shape.dims;
  part[dim] /= members;
  std::vector<int64_t> dims = part;
  dims.insert(dims.begin() + dim, members);
  std::vector<int64_t> order = {dim};
  for (int64_t i = 0; i <= x.shape.rank(); ++i) {
    if (i != dim) order.push_back(i);
  }
  const Block block(part);
  Value y = c.Transpose(c.Reshape(x, dims), order);
  if (block.turned) y = c.Transpose(c.Reshape(y, {members, block.minor, block.major}), {0, 2, 1});
  y = c.Pad(c.Reshape(y, {members, block.major, block.minor}), 2, block.whole - block.minor);
  y = c.Reshape(y, {members, block.OwnRows(), block.columns});
  return c.Pad(y, 1, block.rows - block.OwnRows());
}

Value FromBlocks(Computation& c, const Value& blocks, const Shape& part) {
  const int64_t members = blocks.shape.dims[0];
  const Block block(part.dims);
  const Value own = c.Slice(blocks, 1, 0, block.OwnRows());
  Value y = c.Slice(c.Reshape(own, {members, block.major, block.whole}), 2, 0, block.minor);
  if (block.turned) y = c.Transpose(y, {0, 2, 1});
  std::vector<int64_t> dims = part.dims;
  dims.insert(dims.begin(), members);
  return c.Reshape(y, dims);
}

Value Folded(Computation& c, const Value& x) {
  const int64_t groups = x.shape.dims[0] / kTileLanes;
  const int64_t columns = x.shape.dims[1];
  const Value lanes = c.Reshape(c.Transpose(x, {1, 0}), {columns, groups, kTileLanes});
  return c.Reshape(c.Transpose(lanes, {1, 0, 2}), {groups * columns, kTileLanes});
}

Value Unfolded(Computation& c, const Value& y, int64_t columns) {
  const int64_t groups = y.shape.Elements() / columns / kTileLanes;
  const Value lanes = c.Transpose(c.Reshape(y, {groups, columns, kTileLanes}), {1, 0, 2});
  return c.Transpose(c.Reshape(lanes, {columns, groups * kTileLanes}), {1, 0});
}

Value Joined(Computation& c, const Value& parts, const Shape& part, int64_t dim) {
  const int64_t members = parts.shape.Elements() / part.Elements();
  std::vector<int64_t> dims = part.dims;
  dims.insert(dims.begin(), members);
  std::vector<int64_t> order;
  for (int64_t i = 1; i <= part.rank(); ++i) {
    if (i == dim + 1) order.push_back(0);
    order.push_back(i);
  }
  const Value y = c.Transpose(c.Reshape(parts, dims), order);
  dims = part.dims;
  dims[dim] *= members;
  return c.Reshape(y, dims);
}

}  // namespace xla_cc
