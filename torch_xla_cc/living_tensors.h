// The tensors that Python knows.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace xla_cc {

// Those of XLA devices, also of other threads. Python's gc.get_objects() gives as well what another
// thread is about to free: whoever takes such a tensor for one frees it twice. Call with the
// interpreter lock.
// Of one generation of Python's collector, or all.
std::vector<at::Tensor> LivingTensors(std::optional<int> generation = std::nullopt);

// What it is a view of, for those that functionalization has wrapped: the whole, by itself.
std::optional<at::Tensor> WholeOf(const at::Tensor& tensor);

}  // namespace xla_cc
