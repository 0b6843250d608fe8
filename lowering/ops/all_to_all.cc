#include "lowering/ops/all_to_all.h"

#include <optional>

#include "lowering/model/tournament.h"
#include "lowering/ops/all_gather.h"
#include "lowering/ops/collective_permute.h"
#include "lowering/rules/bits.h"
#include "lowering/rules/by_rank.h"
#include "lowering/rules/lower_op.h"
#include "lowering/rules/shared_ways.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

Status AllToAll::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  XLA_CC_RETURN_IF_ERROR(groups.Resolve(kName, call.world_size()));
  XLA_CC_RETURN_IF_ERROR(
      ResolveAxis(kName, "split_dim", call, /*scalars_as_vectors=*/false, &split_dim));
  XLA_CC_RETURN_IF_ERROR(
      ResolveAxis(kName, "concat_dim", call, /*scalars_as_vectors=*/false, &concat_dim));
  XLA_CC_RETURN_IF_ERROR(
      ResolveCount(kName, "split_count", groups.Size(call.world_size()), &split_count));
  return RequireDivisible(kName, "split_dim", call, split_dim, groups.Size(call.world_size()));
}

std::vector<Shape> AllToAll::Results(const Call& call) const {
  std::vector<Shape> results = call.operands;
  const int64_t members = groups.Size(call.world_size());
  for (Shape& shape : results) {
    shape.dims[split_dim] /= members;
    shape.dims[concat_dim] *= members;
  }
  return results;
}

namespace {

// [.., members at `axis`, block dims ..] -> the blocks, concatenated along `concat_dim`.
Value ConcatenateBlocks(Computation& c, const Value& blocks, int64_t axis, int64_t concat_dim) {
  std::vector<int64_t> permutation;
  for (int64_t dim = 0; dim < blocks.shape.rank(); ++dim) {
    if (dim != axis) permutation.push_back(dim);
  }
  permutation.insert(permutation.begin() + concat_dim, axis);
  const Value moved = axis == concat_dim ? blocks : c.Transpose(blocks, permutation);
  std::vector<int64_t> dims = moved.shape.dims;
  dims[concat_dim + 1] *= dims[concat_dim];
  dims.erase(dims.begin() + concat_dim);
  return c.Reshape(moved, dims);
}

// What came along `split_dim`, concatenated along `concat_dim` instead.
Value Rearrange(Computation& c, const Value& exchanged, int64_t split_dim, int64_t concat_dim,
                int64_t members) {
  if (split_dim == concat_dim) return exchanged;
  std::vector<int64_t> blocks = exchanged.shape.dims;
  blocks[split_dim] /= members;
  blocks.insert(blocks.begin() + split_dim, members);
  return ConcatenateBlocks(c, c.Reshape(exchanged, blocks), split_dim, concat_dim);
}

}  // namespace

Values AllToAll::LowerNative(Emitter& e, const Values& xs) const {
  Computation& c = e.c();
  const Value exchanged = e.AllToAll(xs[0], split_dim, groups);
  return {Rearrange(c, exchanged, split_dim, concat_dim, groups.Size(e.world_size()))};
}

namespace {

// The exchange itself: cut and concatenated along `dim`. The rest is local.
Value Exchange(Emitter& e, const Value& x, int64_t dim, const Groups& groups) {
  return LowerOne(AllToAll{dim, dim, {}, groups}, e, x);
}

// all_to_all = all_gather ; slice of this rank's block of every member.
Value ByGather(const AllToAll& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  const int64_t dim = op.split_dim;
  const Value gathered = LowerOne(AllGather{0, op.groups}, e, AsBlock(c, x));
  const int64_t size = x.shape.dims[dim] / op.groups.Size(e.world_size());
  const std::vector<int64_t> offsets = OffsetsOf(op.groups.Positions(e.world_size()), size);
  return ConcatenateBlocks(c, BlockByRank(c, gathered, dim + 1, size, offsets), 0, dim);
}

// all_to_all = a round of exchanges with each other member, block by block.
Value ByRounds(const AllToAll& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  const int64_t dim = op.split_dim;
  const Groups& groups = op.groups;
  const int64_t world_size = e.world_size();
  const int64_t size = x.shape.dims[dim] / groups.Size(world_size);
  Value result = c.Zeros(x.shape);
  for (const PairingRound& round : PairingRounds(groups, world_size)) {
    const std::vector<int64_t> offsets = OffsetsOf(round.partners, size);
    const Value sent = BlockByRank(c, x, dim, size, offsets);
    const Value received = LowerOne(CollectivePermute{round.pairs}, e, sent);
    result = WithBlockByRank(c, result, received, dim, offsets);
  }
  // Last, since rounds without a partner wrote zeros here.
  const std::vector<int64_t> own = OffsetsOf(groups.Positions(world_size), size);
  const Value kept = KeepByRank(c, BlockByRank(c, x, dim, size, own), groups.Sizes(world_size));
  return WithBlockByRank(c, result, kept, dim, own);
}

// Rows and columns of each group, as square as can be, over which the target exchanges by
// instructions. None if it does not, or if the size of a group is a prime.
std::optional<std::pair<Groups, Groups>> Grid(const Emitter& e, const Groups& groups,
                                              ElementType type) {
  const int64_t world_size = e.world_size();
  if (!groups.Uniform() || !groups.Covers(world_size)) return std::nullopt;
  const int64_t members = groups.Size(world_size);
  int64_t a = 1;
  for (int64_t i = 2; i * i <= members; ++i) {
    if (members % i == 0) a = i;
  }
  if (a == 1) return std::nullopt;
  const int64_t b = members / a;
  std::vector<std::vector<int64_t>> rows;
  std::vector<std::vector<int64_t>> columns;
  for (const auto& group : groups.Expanded(world_size)) {
    for (int64_t i = 0; i < a; ++i) {
      rows.emplace_back(group.begin() + i * b, group.begin() + (i + 1) * b);
    }
    for (int64_t j = 0; j < b; ++j) {
      columns.emplace_back();
      for (int64_t i = 0; i < a; ++i) columns.back().push_back(group[i * b + j]);
    }
  }
  for (const auto& stage : {rows, columns}) {
    if (!Takes(AllToAll{0, 0, {}, Groups(stage)}, e, type)) return std::nullopt;
  }
  return std::pair{Groups(rows), Groups(columns)};
}

// all_to_all of a x b members = all_to_all in rows of b ; all_to_all in columns of a.
Value InTwoStages(const AllToAll& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  const int64_t dim = op.split_dim;
  const auto [rows, columns] = *Grid(e, op.groups, x.shape.type);
  const int64_t a = columns.Size(e.world_size());
  const int64_t b = rows.Size(e.world_size());
  std::vector<int64_t> grid = x.shape.dims;
  grid[dim] /= a * b;
  grid.insert(grid.begin() + dim, {a, b});
  // Blocks are for member (i, j), at [i, j]. In its row, a member gives each the blocks for column
  // j of all rows; what it has then, from [j] of its row for (i, own column), goes down the column.
  const Value by_column = Exchange(e, c.Reshape(x, grid), dim + 1, rows);
  return c.Reshape(Exchange(e, by_column, dim, columns), x.shape.dims);
}

bool HasGrid(const AllToAll& op, const Emitter& e, const Value& x) {
  return Grid(e, op.groups, x.shape.type).has_value();
}

}  // namespace

bool Exchanges(const Emitter& e, const Groups& groups, ElementType type) {
  return Takes(AllToAll{0, 0, {}, groups}, e, type) || Grid(e, groups, type).has_value();
}

const Ways<AllToAll>& AllToAll::Fallback() {
  static const Ways<AllToAll> ways = {
      {
          {"along one dimension",
           [](const AllToAll& op, const Emitter&, const Value&) {
             return op.split_dim != op.concat_dim;
           },
           [](const AllToAll& op, Emitter& e, const Value& x) {
             const AllToAll along{op.split_dim, op.split_dim, {}, op.groups};
             return Rearrange(e.c(), Continue(along, e, x), op.split_dim, op.concat_dim,
                              op.groups.Size(e.world_size()));
           }},
          // all_to_all of a type = that of its bits.
          OfItsBits<AllToAll>(),
          // all_to_all in another order = reordering ; all_to_all in rank order ; reordering.
          InRankOrder<AllToAll, &AllToAll::split_dim, Blocks::kOfBoth>(),
          // all_to_all without some ranks = all_to_all with them in groups of their own ; zeros
          // there.
          InCompletedGroups<AllToAll>(),
      },
      {
          {"by all_gather", &Always<AllToAll>, &ByGather},
          {"in two stages", &HasGrid, &InTwoStages},
          {"in rounds",
           [](const AllToAll& op, const Emitter& e, const Value& x) {
             return MeetsInRounds(op.groups, e, x.shape.type);
           },
           &ByRounds},
      },
  };
  return ways;
}

}  // namespace xla_cc
