// The tensors that operators have made and that still live, also those that only C++ holds, as
// autograd does what a backward pass will need.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace xla_cc {

// From the first call on, what each operator gives is seen, on all threads.
void WatchOperators();
// As torch_xla has them (Unwrapped in living_tensors.h), each once; none before WatchOperators.
std::vector<at::Tensor> MadeTensors();

// To be called before all that lives is run: what nobody else holds does not live.
void ForgetDeadTensors();

}  // namespace xla_cc
