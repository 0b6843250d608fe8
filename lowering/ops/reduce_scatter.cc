#include "lowering/ops/reduce_scatter.h"

#include "lowering/lower.h"
#include "lowering/ops/all_reduce.h"

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
  XLA_CC_RETURN_IF_ERROR(groups.RequireUniform(kName));
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
  for (const Value& x : xs) operands.push_back(reduction.Before(e.c(), x));
  Values results = e.ReduceScatter(operands, reduction.InstructionKind(), dim, groups);
  for (Value& y : results) y = reduction.After(e.c(), y, groups, e.world_size());
  return results;
}

Values ReduceScatter::LowerFallback(Emitter& e, const Values& xs) const {
  Computation& c = e.c();
  const Value& x = xs[0];
  // reduce_scatter in 8 bit floats = convert ; reduce_scatter in f32 ; convert.
  if (hlo::IsFloat8(x.shape.type)) {
    const Value wide = c.Convert(x, ElementType::kF32);
    return {c.Convert(Lower(*this, e, {wide})[0], x.shape.type)};
  }
  // reduce_scatter = all_reduce ; slice of this rank's block.
  const Value reduced = Lower(AllReduce{reduction, groups}, e, {x})[0];
  std::vector<int64_t> sizes = x.shape.dims;
  sizes[dim] /= groups.Size(e.world_size());
  std::vector<int64_t> offsets = groups.Positions(e.world_size());
  for (int64_t& offset : offsets) offset *= sizes[dim];
  Values starts(sizes.size(), c.Scalar(ElementType::kS32, 0));
  starts[dim] = ByRank(c, offsets);
  return {c.DynamicSlice(reduced, starts, sizes)};
}

}  // namespace xla_cc
