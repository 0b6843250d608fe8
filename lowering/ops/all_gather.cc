#include "lowering/ops/all_gather.h"

#include <algorithm>

#include "lowering/ops/all_reduce.h"
#include "lowering/ops/collective_permute.h"
#include "lowering/rules/bits.h"
#include "lowering/rules/by_rank.h"
#include "lowering/rules/lower_op.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

Status AllGather::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  XLA_CC_RETURN_IF_ERROR(groups.Resolve(kName, call.world_size()));
  XLA_CC_RETURN_IF_ERROR(ResolveAxis(kName, "dim", call, /*scalars_as_vectors=*/true, &dim));
  return RequireCountable(kName, call, groups.Size(call.world_size()));
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
  return e.AllGather(vectors, dim, groups);
}

namespace {

// all_gather = sum of every rank's block, padded with zero bits to its place.
Value BySum(const AllGather& op, Emitter& e, const Value& x) {
  const int64_t world_size = e.world_size();
  return MapBits(e.c(), x, [&](const Value& bits) {
    Computation& c = e.c();
    Shape whole = bits.shape;
    whole.dims[op.dim] *= op.groups.Size(world_size);
    std::vector<int64_t> offsets = op.groups.Positions(world_size);
    for (int64_t& offset : offsets) offset *= bits.shape.dims[op.dim];
    const Value own = KeepByRank(c, bits, op.groups.Sizes(world_size));
    const Value placed = WithBlockByRank(c, c.Zeros(whole), own, op.dim, offsets);
    return Lower(AllReduce{{}, op.groups.WithSingles(world_size)}, e, {placed})[0];
  });
}

// all_gather = all_gather of the world ; the blocks of this rank's group.
Value OfTheWorld(const AllGather& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  const int64_t size = x.shape.dims[op.dim];
  const int64_t members = op.groups.Size(e.world_size());
  // One block of zeros behind those of the world, for absent members.
  Value world = Lower(AllGather{op.dim, {}}, e, {x})[0];
  world = AsPlain(c, world, [&](const Value& plain) { return c.Pad(plain, op.dim, size); });
  Rows rows(e.world_size(), std::vector<int64_t>(members, e.world_size()));
  for (const auto& group : op.groups.Expanded(e.world_size())) {
    for (int64_t rank : group) std::copy(group.begin(), group.end(), rows[rank].begin());
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
  std::vector<int64_t> offsets = positions;
  for (int64_t& offset : offsets) offset *= size;
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
    result = WithBlockByRank(c, result, Lower(shift, e, {x})[0], op.dim, offsets);
  }
  return result;
}

}  // namespace

Values AllGather::LowerFallback(Emitter& e, const Values& xs) const {
  Computation& c = e.c();
  const int64_t world_size = e.world_size();
  const Value x = c.Reshape(xs[0], AtLeastVector(xs[0].shape).dims);
  const ElementType type = x.shape.type;
  // all_gather of a type = that of its bits.
  if (!Takes(AllGather{dim, {}}, e, type) && Takes(AllGather{dim, {}}, e, BitsType(type))) {
    return {MapBits(c, x, [&](const Value& bits) { return Lower(*this, e, {bits})[0]; })};
  }
  // all_gather in another order = all_gather in rank order ; reordering.
  const AllGather sorted{dim, groups.Sorted()};
  if (groups.Uniform() && !groups.Ascending() && Takes(sorted, e, type)) {
    const Value gathered = Lower(sorted, e, {x})[0];
    return {ReorderBlocks(c, gathered, dim, ToGroupOrder(groups, world_size))};
  }
  // all_gather without some ranks = all_gather with them in groups of their own ; zeros there.
  const auto completed = groups.Completed(world_size);
  if (!e.target().RanksAreThreads() && !groups.Covers(world_size) && completed &&
      Takes(AllGather{dim, *completed}, e, type)) {
    const Value gathered = Lower(AllGather{dim, *completed}, e, {x})[0];
    return {KeepByRank(c, gathered, groups.Sizes(world_size))};
  }
  using Way = Value (*)(const AllGather&, Emitter&, const Value&);
  std::vector<Way> ways;
  if (Takes(AllReduce{{}, groups.WithSingles(world_size)}, e, ElementType::kU32)) {
    ways.push_back(&BySum);
  }
  // Ranks on threads meet those of their group only: the others may do something else.
  if (!groups.IsWorld() && !e.target().RanksAreThreads() && Takes(AllGather{dim, {}}, e, type)) {
    ways.push_back(&OfTheWorld);
  }
  if (groups.Size(world_size) <= kMostSteps && Takes(CollectivePermute{{{0, 0}}}, e, type)) {
    ways.push_back(&ByPermutes);
  }
  return e.Cheapest(Candidates(*this, ways), {x});
}

}  // namespace xla_cc
