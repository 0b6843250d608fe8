#include "lowering/ops/all_reduce.h"

#include "lowering/ops/all_gather.h"
#include "lowering/ops/all_to_all.h"
#include "lowering/ops/reduce_scatter.h"
#include "lowering/rules/by_rank.h"
#include "lowering/rules/lower_op.h"
#include "lowering/rules/other_types.h"
#include "lowering/rules/reducing.h"

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
  std::vector<int64_t> stacked = x.shape.dims;
  stacked.insert(stacked.begin(), 1);
  const Value gathered = Lower(AllGather{0, op.groups}, e, {e.c().Reshape(x, stacked)})[0];
  return ReducePositions(e, gathered, op.reduction.kind, op.groups);
}

// all_reduce = reduce_scatter ; all_gather, of the elements in a row.
Value ByScatter(const AllReduce& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  const int64_t members = op.groups.Size(e.world_size());
  const int64_t elements = x.shape.Elements();
  const int64_t padding = (members - elements % members) % members;
  const Value row = c.Pad(c.Reshape(x, {elements}), 0, padding);
  const Value part = Lower(ReduceScatter{op.reduction, 0, {}, op.groups}, e, {row})[0];
  const Value whole = Lower(AllGather{0, op.groups}, e, {part})[0];
  return c.Reshape(c.Slice(whole, 0, 0, elements), x.shape.dims);
}

// all_reduce in groups = all_reduce of the world over a place for each group ; the own one.
Value ByPlaces(const AllReduce& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  Shape stacked = x.shape;
  stacked.dims.insert(stacked.dims.begin(), 1);
  Shape places = stacked;
  places.dims[0] = static_cast<int64_t>(op.groups.list().size());
  const std::vector<int64_t> numbers = op.groups.Numbers(e.world_size());
  const Value neutral = c.Fill(Neutral(c, op.reduction.kind, x.shape.type), places);
  const Value own = c.Reshape(x, stacked.dims);
  const Value placed = WithBlockByRank(c, neutral, own, 0, numbers);
  const Value reduced = Lower(AllReduce{op.reduction, {}}, e, {placed})[0];
  return c.Reshape(BlockByRank(c, reduced, 0, 1, numbers), x.shape.dims);
}

}  // namespace

Values AllReduce::LowerFallback(Emitter& e, const Values& xs) const {
  Computation& c = e.c();
  const int64_t world_size = e.world_size();
  const Value& x = xs[0];
  const ElementType type = x.shape.type;
  const ReduceKind kind = reduction.InstructionKind();
  // all_reduce of a type = that of another which holds its values.
  if (const auto other = InAnotherType(*this, e, x)) return {*other};
  if (kind != reduction.kind || reduction.scale != 1.0) {
    const Value y =
        AllReduce{{kind}, groups}.LowerFallback(e, {BeforeReducing(reduction, c, x)}).at(0);
    return {AfterReducing(reduction, c, y, groups, world_size)};
  }
  // Groups have no order here, and a rank in none is a group of its own.
  const AllReduce whole{reduction, groups.WithSingles(world_size).Sorted()};
  const bool other_form = !groups.Covers(world_size) || !groups.Ascending();
  if (other_form && Takes(whole, e, type)) return Lower(whole, e, {x});
  if (!groups.Covers(world_size)) {
    const auto completed = groups.Completed(world_size);
    const Value y = completed && !e.target().RanksAreThreads() &&
                            Takes(AllReduce{reduction, *completed}, e, type)
                        ? Lower(AllReduce{reduction, *completed}, e, {x})[0]
                        : Lower(whole, e, {x})[0];
    return {ChooseByRank(c, groups.Sizes(world_size), y, x)};
  }
  using Way = Value (*)(const AllReduce&, Emitter&, const Value&);
  std::vector<Way> ways = {&ByGather};
  if (groups.Uniform() && Exchanges(e, whole.groups, type)) ways.push_back(&ByScatter);
  if (!groups.IsWorld() && !e.target().RanksAreThreads() &&
      Takes(AllReduce{reduction, {}}, e, type)) {
    ways.push_back(&ByPlaces);
  }
  return e.Cheapest(Candidates(groups.IsWorld() ? *this : whole, ways), {x});
}

}  // namespace xla_cc
