#include "torch_xla_cc/distributed/tensors.h"

#include <algorithm>

namespace xla_cc {

bool AllAlike(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& x) { return x.sizes() == tensors[0].sizes(); });
}

std::vector<int64_t> Elements(const Tensors& tensors) {
  std::vector<int64_t> elements;
  for (const at::Tensor& x : tensors) elements.push_back(x.numel());
  return elements;
}

Tensors Flat(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace xla_cc
