#include "lowering/ops/reduce_scatter.h"

#include "lowering/ops/all_reduce.h"
#include "lowering/ops/all_to_all.h"
#include "lowering/rules/by_rank.h"
#include "lowering/rules/kept.h"
#include "lowering/rules/lower_op.h"
#include "lowering/rules/reducing.h"
#include "lowering/rules/shared_ways.h"

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
  Values results = ReduceScatterKept(e, operands, reduction.InstructionKind(), dim, groups);
  for (Value& y : results) y = AfterReducing(reduction, e.c(), y, groups, e.world_size());
  return results;
}

namespace {

// What ranks in no group get is zeros.
Value WithoutOthers(const ReduceScatter& op, Emitter& e, const Value& y) {
  return KeepByRank(e.c(), y, op.groups.Sizes(e.world_size()));
}

// reduce_scatter = all_reduce ; slice of this rank's block.
Value ByAllReduce(const ReduceScatter& op, Emitter& e, const Value& x) {
  const Value reduced = LowerOne(AllReduce{op.reduction, op.groups}, e, x);
  const int64_t size = x.shape.dims[op.dim] / op.groups.Size(e.world_size());
  const std::vector<int64_t> offsets = OffsetsOf(op.groups.Positions(e.world_size()), size);
  return WithoutOthers(op, e, BlockByRank(e.c(), reduced, op.dim, size, offsets));
}

// reduce_scatter = all_to_all ; reduce of what each member sent, on each rank.
Value ByExchange(const ReduceScatter& op, Emitter& e, const Value& x) {
  Computation& c = e.c();
  const Value exchanged = LowerOne(AllToAll{op.dim, op.dim, {}, op.groups}, e, x);
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
  return WithoutOthers(op, e, ReducePositions(e, stacked, op.reduction.kind, op.groups));
}

// An all_reduce that is no instruction is built of this op, where exchanges are.
bool ReduceIsNoCircle(const ReduceScatter& op, const Emitter& e, const Value& x) {
  const AllReduce reduce{op.reduction, op.groups.WithSingles(e.world_size())};
  return Takes(reduce, e, x.shape.type) || !Exchanges(e, op.groups.Sorted(), x.shape.type);
}

}  // namespace

const Ways<ReduceScatter>& ReduceScatter::Fallback() {
  static const Ways<ReduceScatter> ways = {
      {
          // reduce_scatter of a type = that of another which holds its values.
          InAnotherType<ReduceScatter>(),
          WithScalingAround<ReduceScatter>(),
          // reduce_scatter in another order = reordering ; reduce_scatter in rank order.
          InRankOrder<ReduceScatter, &ReduceScatter::dim, Blocks::kOfOperand>(),
          InCompletedGroups<ReduceScatter>(),
      },
      {
          {"by all_to_all", &Always<ReduceScatter>, &ByExchange},
          {"by all_reduce", &ReduceIsNoCircle, &ByAllReduce},
      },
  };
  return ways;
}

}  // namespace xla_cc
