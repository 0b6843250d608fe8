#include "lowering/ops/all_to_all.h"

#include "lowering/lower.h"
#include "lowering/ops/all_gather.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

Status AllToAll::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  XLA_CC_RETURN_IF_ERROR(groups.Resolve(kName, call.world_size()));
  XLA_CC_RETURN_IF_ERROR(groups.RequireUniform(kName));
  XLA_CC_RETURN_IF_ERROR(
      ResolveAxis(kName, "split_dim", call, /*scalars_as_vectors=*/false, &split_dim));
  XLA_CC_RETURN_IF_ERROR(
      ResolveAxis(kName, "concat_dim", call, /*scalars_as_vectors=*/false, &concat_dim));
  XLA_CC_RETURN_IF_ERROR(
      ResolveCount(kName, "split_count", groups.Size(call.world_size()), &split_count));
  return RequireDivisible(kName, "split_dim", call, split_dim, groups.Size(call.world_size()));
}

std::vector<Shape> AllToAll::Results(const Call& call) const {
  std::vector<Shape> results = call.operands;
  const int64_t members = groups.Size(call.world_size());
  for (Shape& shape : results) {
    shape.dims[split_dim] /= members;
    shape.dims[concat_dim] *= members;
  }
  return results;
}

namespace {

// [.., members at `axis`, block dims ..] -> the blocks, concatenated along `concat_dim`.
Value ConcatenateBlocks(Computation& c, const Value& blocks, int64_t axis, int64_t concat_dim) {
  std::vector<int64_t> permutation;
  for (int64_t dim = 0; dim < blocks.shape.rank(); ++dim) {
    if (dim != axis) permutation.push_back(dim);
  }
  permutation.insert(permutation.begin() + concat_dim, axis);
  const Value moved = axis == concat_dim ? blocks : c.Transpose(blocks, permutation);
  std::vector<int64_t> dims = moved.shape.dims;
  dims[concat_dim + 1] *= dims[concat_dim];
  dims.erase(dims.begin() + concat_dim);
  return c.Reshape(moved, dims);
}

}  // namespace

Values AllToAll::LowerNative(Emitter& e, const Values& xs) const {
  Computation& c = e.c();
  const Value exchanged = e.AllToAll(xs[0], split_dim, groups);
  if (split_dim == concat_dim) return {exchanged};
  std::vector<int64_t> blocks = exchanged.shape.dims;
  blocks[split_dim] /= groups.Size(e.world_size());
  blocks.insert(blocks.begin() + split_dim, groups.Size(e.world_size()));
  return {ConcatenateBlocks(c, c.Reshape(exchanged, blocks), split_dim, concat_dim)};
}

// all_to_all = all_gather ; slice of this rank's block of every member.
Values AllToAll::LowerFallback(Emitter& e, const Values& xs) const {
  Computation& c = e.c();
  std::vector<int64_t> stacked = xs[0].shape.dims;
  stacked.insert(stacked.begin(), 1);
  const Value gathered = Lower(AllGather{0, groups}, e, {c.Reshape(xs[0], stacked)})[0];
  std::vector<int64_t> sizes = gathered.shape.dims;
  sizes[split_dim + 1] /= groups.Size(e.world_size());
  std::vector<int64_t> offsets = groups.Positions(e.world_size());
  for (int64_t& offset : offsets) offset *= sizes[split_dim + 1];
  Values starts(sizes.size(), c.Scalar(ElementType::kS32, 0));
  starts[split_dim + 1] = ByRank(c, offsets);
  return {ConcatenateBlocks(c, c.DynamicSlice(gathered, starts, sizes), 0, concat_dim)};
}

}  // namespace xla_cc
