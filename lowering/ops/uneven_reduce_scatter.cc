#include "lowering/ops/uneven_reduce_scatter.h"

#include "lowering/ops/all_reduce.h"
#include "lowering/ops/reduce_scatter.h"
#include "lowering/rules/kept.h"
#include "lowering/rules/lower_op.h"
#include "lowering/rules/reducing.h"
#include "lowering/rules/uneven_rows.h"

namespace xla_cc {

using hlo::Computation;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

Status UnevenReduceScatter::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  for (const Shape& shape : call.operands) {
    XLA_CC_RETURN_IF_ERROR(reduction.Verify(kName, shape));
  }
  XLA_CC_RETURN_IF_ERROR(ResolveSizes(kName, call.world_size(), sizes, &groups));
  const Sizes scattered = Sums(InGroups(sizes, groups, call.world_size()));
  XLA_CC_RETURN_IF_ERROR(
      RequireRows(kName, call, Largest(scattered), "the largest sum of the sizes of a group"));
  return RequireCountable(kName, call, groups.Size(call.world_size()));
}

std::vector<Shape> UnevenReduceScatter::Results(const Call& call) const {
  std::vector<Shape> results = call.operands;
  for (Shape& shape : results) shape.dims[0] = Largest(sizes);
  return results;
}

namespace {

// A block for each member, of as many rows as the largest has.
Value EvenBlocks(const UnevenReduceScatter& op, Emitter& e, const Value& x) {
  const RankRows taken = InGroups(op.sizes, op.groups, e.world_size());
  return TakeEvenBlocks(e.c(), x, Starts(taken), Largest(op.sizes));
}

// uneven_reduce_scatter = reduce_scatter of blocks as long as the largest ; what counts of the own.
Value ByPadding(const UnevenReduceScatter& op, Emitter& e, const Value& x) {
  const ReduceScatter even{op.reduction, 0, {}, op.groups};
  return KeepFirstRows(e.c(), LowerOne(even, e, EvenBlocks(op, e, x)), op.sizes);
}

// uneven_reduce_scatter = all_reduce ; this rank's rows.
Value ByAllReduce(const UnevenReduceScatter& op, Emitter& e, const Value& x) {
  const RankRows starts = Starts(InGroups(op.sizes, op.groups, e.world_size()));
  const std::vector<int64_t> positions = op.groups.Positions(e.world_size());
  RankRows own_start(e.world_size(), {0});
  RankRows own_size(e.world_size(), {0});
  for (int64_t rank = 0; rank < e.world_size(); ++rank) {
    own_start.Give(rank, {starts[rank][positions[rank]]});
    own_size.Give(rank, {op.sizes[rank]});
  }
  const Value reduced = LowerOne(AllReduce{op.reduction, op.groups}, e, x);
  return PackRows(e.c(), reduced, own_start, own_size, Largest(op.sizes));
}

}  // namespace

Values UnevenReduceScatter::LowerNative(Emitter& e, const Values& xs) const {
  Computation& c = e.c();
  const Value blocks = BeforeReducing(reduction, c, EvenBlocks(*this, e, xs[0]));
  const Value y = ReduceScatterKept(e, {blocks}, reduction.InstructionKind(), 0, groups)[0];
  return {KeepFirstRows(c, AfterReducing(reduction, c, y, groups, e.world_size()), sizes)};
}

const Ways<UnevenReduceScatter>& UnevenReduceScatter::Fallback() {
  static const Ways<UnevenReduceScatter> ways = {
      {},
      {
          {"by reduce_scatter", &Always<UnevenReduceScatter>, &ByPadding},
          {"by all_reduce", &Always<UnevenReduceScatter>, &ByAllReduce},
      },
  };
  return ways;
}

}  // namespace xla_cc
