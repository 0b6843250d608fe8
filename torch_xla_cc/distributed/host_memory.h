// XLA tensors as tensors on the host, and back, without a copy where the device's memory is the
// host's: that of XLA:CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace xla_cc {

// What the tensor holds, contiguous, for reading only: others may hold the same memory. Runs what
// the tensor still waits for.
at::Tensor HostView(const at::Tensor& x);

// Memory for a result, kept for later ones when it is free again: fresh pages cost as much as a
// copy.
at::Tensor HostBuffer(at::IntArrayRef sizes, at::ScalarType type);
at::Tensor HostCopy(const at::Tensor& x);

// `x` sees `value`, of as many elements, from here on. The memory of the value must not change
// after that.
void WriteFromHost(const at::Tensor& x, const at::Tensor& value);

}  // namespace xla_cc
