// Reading a tensor on the host runs the pending graph inside torch_xla, past every Python function.
// So on CPU threads the kernels that read come through here first.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace xla_cc {

// Puts kernels before torch_xla's own for the operators that bring a tensor to the host. Each calls
// `before_read(rank of the tensors, them)` and then the kernel that was there, and keeps what it
// was given until that has read. `before_read` is called without the interpreter lock.
struct Reading {
  std::shared_ptr<void> held;
  std::vector<at::Tensor> instead;  // is read in their place, if there is any
};
using BeforeRead = std::function<Reading(int64_t rank, const std::vector<at::Tensor>& read)>;
void OpenReadHooks(BeforeRead before_read);
// How often this thread has come through them.
int64_t Reads();
// Whether a thread is in one.
bool ReadsUnderWay();
// Takes them out again; torch_xla's kernels are back.
void CloseReadHooks();

}  // namespace xla_cc
