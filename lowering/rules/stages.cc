#include "lowering/rules/stages.h"

#include <algorithm>
#include <numeric>

#include "lowering/rules/by_rank.h"

namespace xla_cc {

using hlo::Computation;
using hlo::Value;
using hlo::Values;

namespace {

// The stages in the order in which a part goes through them: part 1 of 3 begins with the second.
std::vector<size_t> OrderOf(size_t part, size_t stages) {
  std::vector<size_t> order(stages);
  for (size_t i = 0; i < stages; ++i) order[i] = (part + i) % stages;
  return order;
}

Values CutUp(Computation& c, const Value& x, const Parts& parts) {
  const auto& [dim, unit, _] = parts.cut;
  const int64_t size = x.shape.dims[dim];
  const int64_t units = std::accumulate(parts.shares.begin(), parts.shares.end(), int64_t{0});
  Values values;
  int64_t sum = 0;
  int64_t start = 0;
  for (const int64_t share : parts.shares) {
    sum += share;
    const int64_t end = sum == units ? size : std::min(size, sum * unit);
    values.push_back(c.Slice(x, dim, start, end));
    start = end;
  }
  return values;
}

// x as [first, all other rows, columns].
Value AsRows(Computation& c, const Value& x, int64_t first) {
  const std::vector<int64_t>& dims = x.shape.dims;
  const int64_t rest = x.shape.Elements() / first / dims[dims.size() - 1];
  return c.Reshape(x, {first, rest, dims.back()});
}

// The stages' sizes as dimensions, that of the first in `order` in front, and those of a part.
std::vector<int64_t> SizesIn(const std::vector<size_t>& order, const Boxes& boxes,
                             const Value& part) {
  std::vector<int64_t> dims;
  for (size_t stage : order) dims.push_back(boxes.stages[stage].size);
  dims.push_back(part.shape.dims[1]);
  dims.push_back(part.shape.dims[2]);
  return dims;
}

// From dimensions in the order of places (the last stage in front) to those of `order`, and back.
std::vector<int64_t> ToOrder(const std::vector<size_t>& order) {
  const auto stages = static_cast<int64_t>(order.size());
  std::vector<int64_t> permutation;
  for (size_t stage : order) permutation.push_back(stages - 1 - static_cast<int64_t>(stage));
  permutation.insert(permutation.end(), {stages, stages + 1});
  return permutation;
}

std::vector<int64_t> Inverse(const std::vector<int64_t>& permutation) {
  std::vector<int64_t> inverse(permutation.size());
  for (size_t i = 0; i < inverse.size(); ++i) {
    inverse[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  }
  return inverse;
}

// By rank: a row for each group, given to all of its members.
Rows ByRankOf(const std::vector<std::vector<int64_t>>& rows, const Groups& groups,
              int64_t world_size) {
  Rows by_rank;
  for (int64_t number : groups.Numbers(world_size)) by_rank.push_back(rows[number]);
  return by_rank;
}

}  // namespace

Value GatherInStages(Emitter& e, const Value& block, const Groups& groups, const Boxes& boxes,
                     const Parts& cut) {
  Computation& c = e.c();
  const Values parts = CutUp(c, block, cut);
  Values gathered;
  for (size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].shape.Elements() == 0) continue;
    std::vector<size_t> order = OrderOf(part, boxes.stages.size());
    Value y = parts[part];
    for (size_t stage : order) {
      y = e.AllGather({AsRows(c, y, 1)}, 0, boxes.stages[stage].groups)[0];
    }
    std::reverse(order.begin(), order.end());  // the stage that came last is the outermost
    y = c.Reshape(y, SizesIn(order, boxes, parts[part]));
    y = c.Transpose(y, Inverse(ToOrder(order)));
    const std::vector<int64_t>& own = parts[part].shape.dims;
    gathered.push_back(c.Reshape(y, {boxes.Members(), own[1], own[2]}));
  }
  const Value result = gathered.size() == 1 ? gathered[0] : c.Concatenate(gathered, cut.cut.dim);
  if (boxes.InOrder()) return result;
  return ReorderBlocks(c, result, 0, ByRankOf(boxes.places, groups, e.world_size()));
}

Value ScatterInStages(Emitter& e, const Value& blocks, ReduceKind kind, const Groups& groups,
                      const Boxes& boxes, const Parts& cut) {
  Computation& c = e.c();
  Value by_place = blocks;
  if (!boxes.InOrder()) {
    std::vector<std::vector<int64_t>> members;  // at each place
    for (const std::vector<int64_t>& places : boxes.places) members.push_back(Inverse(places));
    by_place = ReorderBlocks(c, blocks, 0, ByRankOf(members, groups, e.world_size()));
  }
  std::vector<size_t> outermost_first(boxes.stages.size());
  for (size_t i = 0; i < outermost_first.size(); ++i) {
    outermost_first[i] = outermost_first.size() - 1 - i;
  }
  const Values parts = CutUp(c, by_place, cut);
  Values scattered;
  for (size_t part = 0; part < parts.size(); ++part) {
    if (parts[part].shape.Elements() == 0) continue;
    const std::vector<size_t> order = OrderOf(part, boxes.stages.size());
    Value y = c.Reshape(parts[part], SizesIn(outermost_first, boxes, parts[part]));
    y = c.Transpose(y, ToOrder(order));
    for (size_t stage : order) {
      y = AsRows(c, y, boxes.stages[stage].size);
      y = e.ReduceScatter({y}, kind, 0, boxes.stages[stage].groups)[0];
    }
    scattered.push_back(y);
  }
  return scattered.size() == 1 ? scattered[0] : c.Concatenate(scattered, cut.cut.dim);
}

}  // namespace xla_cc
