// The Python bindings of the ranks that are threads of this process.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace xla_cc {

void BindThreads(py::module_& m);

}  // namespace xla_cc
