// Tensors as collectives of rows take them, and what comes of those.
#pragma once

#include "torch_xla_cc/distributed/tensors.h"

namespace xla_cc {

// A number as a row, so that forms of one call make one node.
at::Tensor Rows(const at::Tensor& x);
// As many rows as `rows`; what is filled up does not count.
at::Tensor Filled(const at::Tensor& x, int64_t rows);
// All elements of all, one behind the other.
at::Tensor Joined(const Tensors& parts);
// To each output, its part of what lies one behind the other.
void WriteParts(const Tensors& outputs, const at::Tensor& joined);

}  // namespace xla_cc
