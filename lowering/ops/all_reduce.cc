#include "lowering/ops/all_reduce.h"

#include "lowering/ops/all_gather.h"
#include "lowering/ops/all_to_all.h"
#include "lowering/ops/reduce_scatter.h"
#include "lowering/rules/by_rank.h"
#include "lowering/rules/lower_op.h"
#include "lowering/rules/reducing.h"
#include "lowering/rules/shared_ways.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

Status AllReduce::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  for (const hlo::Shape& shape : call.operands) {
    XLA_CC_RETURN_IF_ERROR(reduction.Verify(kName, shape));
  }
  return groups.Resolve(kName, call.world_size());
}

Values AllReduce::LowerNative(Emitter& e, const Values& xs) const {
  Values operands;
  for (const Value& x : xs) operands.push_back(BeforeReducing(reduction, e.c(), x));
  Values results = e.AllReduce(operands, reduction.InstructionKind(), groups);
  for (Value& y : results) y = AfterReducing(reduction, e.c(), y, groups, e.world_size());
  return results;
}

namespace {

// all_reduce = all_gather ; reduce of the gathered axis, on each rank.
Value ByGather(const AllReduce& op, Emitter& e, const Value& x) {
  const Value gathered = LowerOne(AllGather{0, op.groups}, e, AsBlock(e.c(), x));
  return ReducePositions(e, gathered, op.reduction.kind, op.groups);
}

// all_reduce = reduce_scatter ; all_gather, of the elements in a row.
Value ByScatter(const AllReduce& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  const int64_t members = op.groups.Size(e.world_size());
  const int64_t elements = x.shape.Elements();
  const int64_t padding = (members - elements % members) % members;
  const Value row = c.Pad(c.Reshape(x, {elements}), 0, padding);
  const Value part = LowerOne(ReduceScatter{op.reduction, 0, {}, op.groups}, e, row);
  const Value whole = LowerOne(AllGather{0, op.groups}, e, part);
  return c.Reshape(c.Slice(whole, 0, 0, elements), x.shape.dims);
}

// all_reduce in groups = all_reduce of the world over a place for each group ; the own one.
Value ByPlaces(const AllReduce& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  Shape places = x.shape;
  places.dims.insert(places.dims.begin(), static_cast<int64_t>(op.groups.list().size()));
  const std::vector<int64_t> numbers = op.groups.Numbers(e.world_size());
  const Value neutral = c.Fill(Neutral(c, op.reduction.kind, x.shape.type), places);
  const Value own = AsBlock(c, x);
  const Value placed = WithBlockByRank(c, neutral, own, 0, numbers);
  const Value reduced = LowerOne(AllReduce{op.reduction, {}}, e, placed);
  return c.Reshape(BlockByRank(c, reduced, 0, 1, numbers), x.shape.dims);
}

bool ScatterIsTaken(const AllReduce& op, const Emitter& e, const Value& x) {
  return op.groups.Uniform() && Exchanges(e, op.groups, x.shape.type);
}

// Groups have no order here, and a rank in none is a group of its own.
AllReduce Sorted(const AllReduce& op, const Emitter& e) {
  return WithGroups(op, op.groups.WithSingles(e.world_size()).Sorted());
}

bool GoesInRankOrder(const AllReduce& op, const Emitter& e, const Value& x) {
  const bool covers = op.groups.Covers(e.world_size());
  if (covers && op.groups.Ascending()) return false;
  return covers || Takes(Sorted(op, e), e, x.shape.type);
}

Value InSortedGroups(const AllReduce& op, Emitter& e, const Value& x) {
  const AllReduce sorted = Sorted(op, e);
  return Takes(sorted, e, x.shape.type) ? LowerOne(sorted, e, x) : Continue(sorted, e, x);
}

// What ranks in no group have stays.
Value KeepOthers(const AllReduce& op, Emitter& e, const Value& y, const Value& x) {
  return ChooseByRank(e.c(), op.groups.Sizes(e.world_size()), y, x);
}

}  // namespace

const Ways<AllReduce>& AllReduce::Fallback() {
  static const Ways<AllReduce> ways = {
      {
          // all_reduce of a type = that of another which holds its values.
          InAnotherType<AllReduce>(),
          WithScalingAround<AllReduce>(),
          {"in rank order", &GoesInRankOrder, &InSortedGroups},
          {"in completed groups", &TakesCompletedGroups<AllReduce>,
           [](const AllReduce& op, Emitter& e, const Value& x) {
             return KeepOthers(op, e, LowerInCompletedGroups(op, e, x), x);
           }},
          {"with the others alone",
           [](const AllReduce& op, const Emitter& e, const Value&) {
             return !op.groups.Covers(e.world_size());
           },
           [](const AllReduce& op, Emitter& e, const Value& x) {
             return KeepOthers(op, e, LowerOne(Sorted(op, e), e, x), x);
           }},
      },
      {
          {"by all_gather", &Always<AllReduce>, &ByGather},
          {"by reduce_scatter", &ScatterIsTaken, &ByScatter},
          {"by places in the world's", &TakesTheWorld<AllReduce>, &ByPlaces},
      },
  };
  return ways;
}

}  // namespace xla_cc
