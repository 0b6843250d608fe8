#include "lowering/ops/all_gather.h"

#include <algorithm>

#include "lowering/ops/all_reduce.h"
#include "lowering/ops/collective_permute.h"
#include "lowering/rules/bits.h"
#include "lowering/rules/by_rank.h"
#include "lowering/rules/kept.h"
#include "lowering/rules/lower_op.h"
#include "lowering/rules/shared_ways.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

Status AllGather::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  XLA_CC_RETURN_IF_ERROR(groups.Resolve(kName, call.world_size()));
  return ResolveAxis(kName, "dim", call, /*scalars_as_vectors=*/true, &dim);
}

std::vector<Shape> AllGather::Results(const Call& call) const {
  std::vector<Shape> results;
  for (const Shape& operand : call.operands) {
    Shape shape = AtLeastVector(operand);
    shape.dims[dim] *= groups.Size(call.world_size());
    results.push_back(shape);
  }
  return results;
}

Values AllGather::LowerNative(Emitter& e, const Values& xs) const {
  Values vectors;
  for (const Value& x : xs) vectors.push_back(e.c().Reshape(x, AtLeastVector(x.shape).dims));
  return AllGatherKept(e, vectors, dim, groups);
}

namespace {

// all_gather = sum of every rank's block, padded with zero bits to its place.
Value BySum(const AllGather& op, Emitter& e, const Value& x) {
  const int64_t world_size = e.world_size();
  return MapBits(e.c(), x, [&](const Value& bits) {
    Computation& c = e.c();
    Shape whole = bits.shape;
    whole.dims[op.dim] *= op.groups.Size(world_size);
    const std::vector<int64_t> offsets =
        OffsetsOf(op.groups.Positions(world_size), bits.shape.dims[op.dim]);
    const Value own = KeepByRank(c, bits, op.groups.Sizes(world_size));
    const Value placed = WithBlockByRank(c, c.Zeros(whole), own, op.dim, offsets);
    return LowerOne(AllReduce{{}, op.groups.WithSingles(world_size)}, e, placed);
  });
}

bool SumIsTaken(const AllGather& op, const Emitter& e, const Value&) {
  return Takes(AllReduce{{}, op.groups.WithSingles(e.world_size())}, e, ElementType::kU32);
}

// all_gather = all_gather of the world ; the blocks of this rank's group.
Value OfTheWorld(const AllGather& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  const int64_t size = x.shape.dims[op.dim];
  const int64_t members = op.groups.Size(e.world_size());
  // One block of zeros behind those of the world, for absent members.
  Value world = LowerOne(AllGather{op.dim, {}}, e, x);
  world = AsPlain(c, world, [&](const Value& plain) { return c.Pad(plain, op.dim, size); });
  const Row absent(members, e.world_size());
  RankRows rows(e.world_size(), absent);
  for (const auto& group : op.groups.Expanded(e.world_size())) {
    Row row = absent;
    std::copy(group.begin(), group.end(), row.begin());
    rows.Give(group, std::move(row));
  }
  return TakeBlocks(c, world, op.dim, size, rows);
}

// all_gather = members - 1 steps around each group, every member's block in its place.
Value ByPermutes(const AllGather& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  const int64_t world_size = e.world_size();
  const int64_t size = x.shape.dims[op.dim];
  const std::vector<int64_t> sizes = op.groups.Sizes(world_size);
  const std::vector<int64_t> positions = op.groups.Positions(world_size);
  Shape whole = x.shape;
  whole.dims[op.dim] *= op.groups.Size(world_size);
  std::vector<int64_t> offsets = OffsetsOf(positions, size);
  Value result = WithBlockByRank(c, c.Zeros(whole), KeepByRank(c, x, sizes), op.dim, offsets);
  for (int64_t step = 1; step < op.groups.Size(world_size); ++step) {
    CollectivePermute shift;
    for (const auto& group : op.groups.Expanded(world_size)) {
      const int64_t members = static_cast<int64_t>(group.size());
      for (int64_t i = 0; step < members && i < members; ++i) {
        shift.pairs.push_back({group[i], group[(i + step) % members]});
      }
    }
    std::sort(shift.pairs.begin(), shift.pairs.end());
    // Where nothing comes any more, zeros go to the place of an absent member.
    for (int64_t rank = 0; rank < world_size; ++rank) {
      const int64_t members = sizes[rank];
      const int64_t from = step < members ? (positions[rank] - step + members) % members : step;
      offsets[rank] = from * size;
    }
    result = WithBlockByRank(c, result, LowerOne(shift, e, x), op.dim, offsets);
  }
  return result;
}

bool PermutesAreTaken(const AllGather& op, const Emitter& e, const Value& x) {
  return op.groups.Size(e.world_size()) <= kMostSteps &&
         Takes(CollectivePermute{{{0, 0}}}, e, x.shape.type);
}

}  // namespace

const Ways<AllGather>& AllGather::Fallback() {
  static const Ways<AllGather> ways = {
      {
          {"as vectors",
           [](const AllGather&, const Emitter&, const Value& x) { return x.shape.rank() == 0; },
           [](const AllGather& op, Emitter& e, const Value& x) {
             return Continue(op, e, e.c().Reshape(x, AtLeastVector(x.shape).dims));
           }},
          // all_gather of a type = that of its bits.
          OfItsBits<AllGather>(),
          // all_gather in another order = all_gather in rank order ; reordering.
          InRankOrder<AllGather, &AllGather::dim, Blocks::kOfResult>(),
          // all_gather without some ranks = all_gather with them in groups of their own ; zeros
          // there.
          InCompletedGroups<AllGather>(),
      },
      {
          {"as a sum", &SumIsTaken, &BySum},
          {"of the world", &TakesTheWorld<AllGather>, &OfTheWorld},
          {"by permutes", &PermutesAreTaken, &ByPermutes},
      },
  };
  return ways;
}

}  // namespace xla_cc
