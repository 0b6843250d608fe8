// Lists of tensors, as torch.distributed has them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace xla_cc {

using Tensors = std::vector<at::Tensor>;

bool AllAlike(const Tensors& tensors);  // of one shape
std::vector<int64_t> Elements(const Tensors& tensors);
Tensors Flat(const std::vector<Tensors>& lists);  // all of all

}  // namespace xla_cc
