// XLA tensors as tensors on the host, and back, without a copy where the device's memory is the
// host's: that of XLA:CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>

namespace xla_cc {

// What the tensor holds, contiguous, for reading only: others may hold the same memory. Runs what
// the tensor still waits for.
at::Tensor HostView(const at::Tensor& x);

// Memory for a result, kept for later ones when it is free again: fresh pages cost as much as a
// copy.
at::Tensor HostBuffer(at::IntArrayRef sizes, at::ScalarType type);
at::Tensor HostCopy(const at::Tensor& x);

// For who writes tensors of that device, or reads their shapes, on a thread that may not be the
// rank's own: HostView changes all that are alive, and torch_xla guards none of them.
std::unique_lock<std::recursive_mutex> LockTensors(at::Device device);

// `x` sees `value`, of as many elements, from here on. The memory of the value must not change
// after that. The caller holds LockTensors.
void WriteFromHost(const at::Tensor& x, const at::Tensor& value);

}  // namespace xla_cc
