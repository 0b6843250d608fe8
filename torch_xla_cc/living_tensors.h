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

// What torch_xla has for it: itself; or what functionalization has wrapped, and what that is a view
// of. As they are: what has been written to other views is not written to these now, which could
// be asked for in the middle of just that.
std::vector<at::Tensor> Unwrapped(const at::Tensor& tensor);

}  // namespace xla_cc
