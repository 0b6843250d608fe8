#include "lowering/ops/uneven_all_gather.h"

#include "lowering/ops/all_gather.h"
#include "lowering/ops/all_reduce.h"
#include "lowering/ops/collective_broadcast.h"
#include "lowering/rules/bits.h"
#include "lowering/rules/by_rank.h"
#include "lowering/rules/kept.h"
#include "lowering/rules/lower_op.h"
#include "lowering/rules/uneven_rows.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

Status UnevenAllGather::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  XLA_CC_RETURN_IF_ERROR(ResolveSizes(kName, call.world_size(), sizes, &groups));
  XLA_CC_RETURN_IF_ERROR(RequireRows(kName, call, Largest(sizes), "the largest of sizes"));
  return RequireCountable(kName, call, groups.Size(call.world_size()));
}

std::vector<Shape> UnevenAllGather::Results(const Call& call) const {
  std::vector<Shape> results = call.operands;
  const Sizes gathered = Sums(InGroups(sizes, groups, call.world_size()));
  for (Shape& shape : results) shape.dims[0] = Largest(gathered);
  return results;
}

namespace {

// What each member gave, without what fills it up; `starts` says where each begins.
Value Compact(const UnevenAllGather& op, Emitter& e, const Value& x, const RankRows& starts) {
  const RankRows given = InGroups(op.sizes, op.groups, e.world_size());
  return PackRows(e.c(), x, starts, given, Largest(Sums(given)));
}

Value CompactEvenBlocks(const UnevenAllGather& op, Emitter& e, const Value& gathered) {
  const int64_t members = op.groups.Size(e.world_size());
  return Compact(op, e, gathered, EvenStarts(e.world_size(), members, Largest(op.sizes)));
}

// uneven_all_gather = all_gather of as many rows as the largest ; what counts of each.
Value ByPadding(const UnevenAllGather& op, Emitter& e, const Value& x) {
  return CompactEvenBlocks(op, e, LowerOne(AllGather{0, op.groups}, e, x));
}

// uneven_all_gather = sum of every rank's rows, with zero bits around them at their place.
Value BySum(const UnevenAllGather& op, Emitter& e, const Value& x) {
  const int64_t world_size = e.world_size();
  const RankRows given = InGroups(op.sizes, op.groups, world_size);
  const RankRows starts = Starts(given);
  Sizes own_starts = op.groups.Positions(world_size);
  for (int64_t rank = 0; rank < world_size; ++rank) {
    own_starts[rank] = starts[rank][own_starts[rank]];
  }
  return MapBits(e.c(), x, [&](const Value& bits) {
    Computation& c = e.c();
    const int64_t rows = Largest(Sums(given));
    const Value own = KeepFirstRows(c, bits, op.sizes);
    // Room behind the last, for what fills up an operand.
    const Value place = c.Zeros(WithRows(bits.shape, rows + bits.shape.dims[0]));
    const Value placed = WithRows(c, WithBlockByRank(c, place, own, 0, own_starts), rows);
    return LowerOne(AllReduce{{}, op.groups.WithSingles(world_size)}, e, placed);
  });
}

// uneven_all_gather = collective_broadcast from each member of as many rows as it gives.
Value ByBroadcasts(const UnevenAllGather& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  const std::vector<int64_t> most = Most(InGroups(op.sizes, op.groups, e.world_size()));
  Values parts;
  std::vector<int64_t> starts;
  int64_t rows = 0;
  for (size_t i = 0; i < most.size(); ++i) {
    starts.push_back(rows);
    if (most[i] == 0) continue;
    const CollectiveBroadcast from{static_cast<int64_t>(i), op.groups};
    parts.push_back(LowerOne(from, e, c.Slice(x, 0, 0, most[i])));
    rows += most[i];
  }
  return Compact(op, e, JoinRows(c, parts), RankRows(e.world_size(), starts));
}

// An instruction of its own; else it is a sum for each member, and one sum is better. Every group
// has a root for each.
bool BroadcastIsTaken(const UnevenAllGather& op, const Emitter& e, const Value& x) {
  return op.groups.Uniform() && op.groups.Size(e.world_size()) <= kMostSteps &&
         Takes(CollectiveBroadcast{0, op.groups}, e, x.shape.type);
}

}  // namespace

Values UnevenAllGather::LowerNative(Emitter& e, const Values& xs) const {
  return {CompactEvenBlocks(*this, e, AllGatherKept(e, {xs[0]}, 0, groups)[0])};
}

const Ways<UnevenAllGather>& UnevenAllGather::Fallback() {
  static const Ways<UnevenAllGather> ways = {
      {},
      {
          {"by all_gather", &Always<UnevenAllGather>, &ByPadding},
          {"as a sum",
           [](const UnevenAllGather& op, const Emitter& e, const Value&) {
             const Groups groups = op.groups.WithSingles(e.world_size());
             return Takes(AllReduce{{}, groups}, e, ElementType::kU32);
           },
           &BySum},
          {"by broadcasts", &BroadcastIsTaken, &ByBroadcasts},
      },
  };
  return ways;
}

}  // namespace xla_cc
