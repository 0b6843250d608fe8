#include "lowering/ops/all_reduce.h"

#include "lowering/lower.h"
#include "lowering/ops/all_gather.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
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
  for (const Value& x : xs) operands.push_back(reduction.Before(e.c(), x));
  Values results = e.AllReduce(operands, reduction.InstructionKind(), groups);
  for (Value& y : results) y = reduction.After(e.c(), y, groups, e.world_size());
  return results;
}

Values AllReduce::LowerFallback(Emitter& e, const Values& xs) const {
  Computation& c = e.c();
  const Value& x = xs[0];
  // all_reduce in 8 bit floats = convert ; all_reduce in f32 ; convert. Rounded once, at the end.
  if (hlo::IsFloat8(x.shape.type)) {
    const Value wide = c.Convert(x, ElementType::kF32);
    return {c.Convert(Lower(*this, e, {wide})[0], x.shape.type)};
  }
  // all_reduce by and, or, xor = all_gather ; reduce of the gathered axis, on each rank.
  std::vector<int64_t> stacked = x.shape.dims;
  stacked.insert(stacked.begin(), 1);
  const Value gathered = Lower(AllGather{0, groups}, e, {c.Reshape(x, stacked)})[0];
  Value init = c.Scalar(x.shape.type, 0);
  if (reduction.kind == ReduceKind::kAnd) init = c.Unary("not", init);
  const hlo::Callee reducer = e.module().Reducer(ReducerOpcode(reduction.kind), x.shape.type);
  return {reduction.After(c, c.Reduce(gathered, init, 0, reducer), groups, e.world_size())};
}

}  // namespace xla_cc
