#include "lowering/rules/tpu_tiles.h"

#include <algorithm>
#include <vector>

namespace xla_cc {

using hlo::Computation;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

namespace {

constexpr int64_t kTile[] = {128, 8};  // of the last dimension, and of the one before it

// The rows as which an operand of a reduce-scatter goes, or what it is.
Shape MatrixOf(const Shape& shape, int64_t parts) {
  const std::vector<int64_t>& dims = shape.dims;
  if (dims.size() == 1 && dims[0] % (parts * kTile[0] * kTile[1]) == 0) {
    return {shape.type, {dims[0] / kTile[0], kTile[0]}};
  }
  if (dims.size() < 3) return shape;
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < dims.size(); ++i) rows *= dims[i];
  return {shape.type, {rows, dims.back()}};
}

}  // namespace

bool MustGoFirst(const Target& target, const Values& xs, int64_t dim, int64_t parts) {
  if (target.kind != DeviceKind::kTpu || dim == 0) return false;
  return std::any_of(xs.begin(), xs.end(), [&](const Value& x) {
    const int64_t behind = x.shape.rank() - 1 - dim;  // how many dimensions
    return x.shape.rank() > 2 && behind < 2 && x.shape.dims[dim] / parts % kTile[behind] != 0;
  });
}

Values WithDimensionFirst(Computation& c, const Values& xs, int64_t dim,
                          const std::function<Values(const Values&)>& run) {
  // As torch.movedim(x, dim, 0), and back.
  const auto order = [dim](const Value& x, bool back) {
    std::vector<int64_t> from(x.shape.rank());
    for (int64_t i = 0; i < x.shape.rank(); ++i) {
      if (back) {
        from[i] = i < dim ? i + 1 : i == dim ? 0 : i;
      } else {
        from[i] = i == 0 ? dim : i <= dim ? i - 1 : i;
      }
    }
    return from;
  };
  Values moved;
  for (const Value& x : xs) moved.push_back(c.Transpose(x, order(x, false)));
  Values results;
  for (const Value& y : run(moved)) results.push_back(c.Transpose(y, order(y, true)));
  return results;
}

bool MustBeMatrix(const Target& target, const Values& xs, int64_t dim, int64_t parts) {
  if (target.kind != DeviceKind::kTpu || dim != 0) return false;
  return std::any_of(xs.begin(), xs.end(),
                     [&](const Value& x) { return MatrixOf(x.shape, parts) != x.shape; });
}

Values AsMatrix(Computation& c, const Values& xs, int64_t parts,
                const std::function<Values(const Values&)>& run) {
  Values operands;
  for (const Value& x : xs) {
    const Shape rows = MatrixOf(x.shape, parts);
    operands.push_back(rows == x.shape ? x : c.Reshape(x, rows.dims));
  }
  Values results = run(operands);
  for (size_t i = 0; i < xs.size(); ++i) {
    std::vector<int64_t> dims = xs[i].shape.dims;
    dims[0] /= parts;
    if (results[i].shape.dims != dims) results[i] = c.Reshape(results[i], dims);
  }
  return results;
}

}  // namespace xla_cc
