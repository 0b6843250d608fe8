// The tensors that operators have made and that still live, also those that only C++ holds, as
// autograd does what a backward pass will need.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace xla_cc {

// Between these, what each operator gives is seen, on all threads: not without functionalization,
// which wraps what is held here. Call both with the interpreter lock.
void WatchOperators();
void StopWatching();
// As torch_xla has them (Unwrapped in living_tensors.h), each once.
std::vector<at::Tensor> MadeTensors();

// To be called before all that lives is run: what nobody else holds does not live.
void ForgetDeadTensors();

}  // namespace xla_cc
