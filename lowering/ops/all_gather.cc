#include "lowering/ops/all_gather.h"

#include "lowering/bits.h"
#include "lowering/lower.h"

namespace xla_cc {

using hlo::Shape;
using hlo::Value;
using hlo::Values;

Status AllGather::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  XLA_CC_RETURN_IF_ERROR(groups.Resolve(kName, call.world_size()));
  XLA_CC_RETURN_IF_ERROR(groups.RequireUniform(kName));
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

// all_gather = sum of every rank's block, padded with zero bits to its place.
Values AllGather::LowerFallback(Emitter& e, const Values& xs) const {
  const Value x = e.c().Reshape(xs[0], AtLeastVector(xs[0].shape).dims);
  return {MapBits(e.c(), x, [&](const Value& bits) {
    hlo::Computation& c = e.c();
    Shape whole = bits.shape;
    whole.dims[dim] *= groups.Size(e.world_size());
    Values starts(whole.dims.size(), c.Scalar(hlo::ElementType::kS32, 0));
    std::vector<int64_t> offsets = groups.Positions(e.world_size());
    for (int64_t& offset : offsets) offset *= bits.shape.dims[dim];
    starts[dim] = ByRank(c, offsets);
    const Value zeros = c.Broadcast(c.Scalar(bits.shape.type, 0), whole, {});
    return Lower(AllReduce{{}, groups}, e, {c.DynamicUpdateSlice(zeros, bits, starts)})[0];
  })};
}

}  // namespace xla_cc
