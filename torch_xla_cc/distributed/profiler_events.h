// The events of PyTorch's profiler.
#pragma once

#include <functional>
#include <string>

#include "torch_xla_cc/distributed/transport.h"

namespace xla_cc {

// Begins the event of a call that takes these tensors, "xla_cc:all_reduce" for instance. What is
// returned ends it, on any thread; it is empty where nothing is profiled.
std::function<void()> BeginEvent(const char* op, const Tensors& inputs);

}  // namespace xla_cc
