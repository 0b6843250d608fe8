#include "lowering/ops/reduce_scatter.h"

#include "lowering/ops/all_reduce.h"
#include "lowering/ops/all_to_all.h"
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

Status ReduceScatter::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  for (const Shape& shape : call.operands) {
    XLA_CC_RETURN_IF_ERROR(reduction.Verify(kName, shape));
  }
  XLA_CC_RETURN_IF_ERROR(groups.Resolve(kName, call.world_size()));
  XLA_CC_RETURN_IF_ERROR(ResolveAxis(kName, "dim", call, /*scalars_as_vectors=*/false, &dim));
  XLA_CC_RETURN_IF_ERROR(
      ResolveCount(kName, "shard_count", groups.Size(call.world_size()), &shard_count));
  return RequireDivisible(kName, "dim", call, dim, groups.Size(call.world_size()));
}

std::vector<Shape> ReduceScatter::Results(const Call& call) const {
  std::vector<Shape> results = call.operands;
  for (Shape& shape : results) shape.dims[dim] /= groups.Size(call.world_size());
  return results;
}

Values ReduceScatter::LowerNative(Emitter& e, const Values& xs) const {
  Values operands;
  for (const Value& x : xs) operands.push_back(BeforeReducing(reduction, e.c(), x));
  Values results = e.ReduceScatter(operands, reduction.InstructionKind(), dim, groups);
  for (Value& y : results) y = AfterReducing(reduction, e.c(), y, groups, e.world_size());
  return results;
}

namespace {

// reduce_scatter = all_reduce ; slice of this rank's block.
Value ByAllReduce(const ReduceScatter& op, Emitter& e, const Value& x) {
  const Value reduced = Lower(AllReduce{op.reduction, op.groups}, e, {x})[0];
  const int64_t size = x.shape.dims[op.dim] / op.groups.Size(e.world_size());
  std::vector<int64_t> offsets = op.groups.Positions(e.world_size());
  for (int64_t& offset : offsets) offset *= size;
  return BlockByRank(e.c(), reduced, op.dim, size, offsets);
}

// reduce_scatter = all_to_all ; reduce of what each member sent, on each rank.
Value ByExchange(const ReduceScatter& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  const Value exchanged = Lower(AllToAll{op.dim, op.dim, {}, op.groups}, e, {x})[0];
  const int64_t members = op.groups.Size(e.world_size());
  std::vector<int64_t> blocks = x.shape.dims;
  blocks[op.dim] /= members;
  blocks.insert(blocks.begin() + op.dim, members);
  Value stacked = c.Reshape(exchanged, blocks);
  if (op.dim > 0) {
    std::vector<int64_t> first = {op.dim};
    for (int64_t dim = 0; dim < stacked.shape.rank(); ++dim) {
      if (dim != op.dim) first.push_back(dim);
    }
    stacked = c.Transpose(stacked, first);
  }
  return ReducePositions(e, stacked, op.reduction.kind, op.groups);
}

}  // namespace

Values ReduceScatter::LowerFallback(Emitter& e, const Values& xs) const {
  Computation& c = e.c();
  const int64_t world_size = e.world_size();
  const Value& x = xs[0];
  const ElementType type = x.shape.type;
  const ReduceKind kind = reduction.InstructionKind();
  // reduce_scatter of a type = that of another which holds its values.
  if (const auto other = InAnotherType(*this, e, x)) return {*other};
  if (kind != reduction.kind || reduction.scale != 1.0) {
    const ReduceScatter plain{{kind}, dim, {}, groups};
    const Value y = plain.LowerFallback(e, {BeforeReducing(reduction, c, x)}).at(0);
    return {AfterReducing(reduction, c, y, groups, world_size)};
  }
  // reduce_scatter in another order = reordering ; reduce_scatter in rank order.
  const ReduceScatter sorted{reduction, dim, {}, groups.Sorted()};
  if (groups.Uniform() && !groups.Ascending() && Takes(sorted, e, type)) {
    return Lower(sorted, e, {ReorderBlocks(c, x, dim, ToRankOrder(groups, world_size))});
  }
  // What ranks in no group get is zeros, by each of the ways.
  const auto completed = groups.Completed(world_size);
  if (!e.target().RanksAreThreads() && !groups.Covers(world_size) && completed &&
      Takes(ReduceScatter{reduction, dim, {}, *completed}, e, type)) {
    const Value y = Lower(ReduceScatter{reduction, dim, {}, *completed}, e, {x})[0];
    return {KeepByRank(c, y, groups.Sizes(world_size))};
  }
  using Way = Value (*)(const ReduceScatter&, Emitter&, const Value&);
  std::vector<Way> ways = {&ByExchange};
  // An all_reduce that is no instruction is built of this op, where exchanges are.
  if (Takes(AllReduce{reduction, groups.WithSingles(world_size)}, e, type) ||
      !Exchanges(e, groups.Sorted(), type)) {
    ways.push_back(&ByAllReduce);
  }
  const Values y = e.Cheapest(Candidates(*this, ways), {x});
  return {KeepByRank(c, y[0], groups.Sizes(world_size))};
}

}  // namespace xla_cc
