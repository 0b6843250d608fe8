#include "lowering/front.h"

#include <algorithm>
#include <vector>

namespace xla_cc {

using hlo::Computation;
using hlo::Value;
using hlo::Values;

namespace {

constexpr int64_t kTile[] = {128, 8};  // of the last dimension, and of the one before it

}  // namespace

bool GoesToFront(const Target& target, const Values& xs, int64_t dim, int64_t parts) {
  if (target.kind != DeviceKind::kTpu || dim == 0) return false;
  return std::any_of(xs.begin(), xs.end(), [&](const Value& x) {
    const int64_t behind = x.shape.rank() - 1 - dim;  // how many dimensions
    return x.shape.rank() > 2 && behind < 2 && x.shape.dims[dim] / parts % kTile[behind] != 0;
  });
}

Values AlongFront(Computation& c, const Values& xs, int64_t dim,
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

}  // namespace xla_cc
