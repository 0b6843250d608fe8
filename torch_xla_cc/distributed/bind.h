// The Python bindings of torch.distributed's backend.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace xla_cc {

void BindDistributed(py::module_& m);

}  // namespace xla_cc
