#include "torch_xla_cc/distributed/graph/rows.h"

#include <ATen/ATen.h>

#include "torch_xla_cc/distributed/write_into.h"

namespace xla_cc {

at::Tensor Filled(const at::Tensor& x, int64_t rows) {
  const int64_t given = x.size(0);
  if (given == rows) return x;
  if (given == 0) {
    std::vector<int64_t> dims = x.sizes().vec();
    dims[0] = rows;
    return at::zeros(dims, x.options());
  }
  // Not a concatenation: XLA:CPU makes one of narrow floats as f32, and so quietens NaNs.
  const auto indices = at::arange(rows, x.options().dtype(at::kLong)).clamp_max(given - 1);
  return x.index_select(0, indices);
}

at::Tensor Joined(const Tensors& parts) {
  Tensors flat;
  for (const at::Tensor& part : parts) flat.push_back(part.reshape({-1}));
  return at::cat(flat);
}

void WriteParts(const Tensors& outputs, const at::Tensor& joined) {
  int64_t start = 0;
  for (const at::Tensor& output : outputs) {
    Write(output, joined.narrow(0, start, output.numel()));
    start += output.numel();
  }
}

at::Tensor Rows(const at::Tensor& x) { return x.dim() == 0 ? x.reshape({1}) : x; }

}  // namespace xla_cc
