// The Python bindings of the graph's side: a function for each collective, what lowerings are for,
// and the table of what compilers take.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>

#include "torch_xla_cc/graph/plan_cache.h"

namespace xla_cc {

// _C.<name>(tensor or list, fields...), and lower_<name>, which attaches nothing.
void BindCollectives(py::module_& m);
void BindLowering(py::module_& m);
void BindCapabilities(py::module_& m);
// Pending calls, for _processes/agreement.py.
void BindNotedCalls(py::module_& m);

// A plan as a dictionary.
py::dict Describe(const Plan& plan);
// Throws BadValue on what is none.
hlo::ElementType TypeOfNumber(int64_t number);

}  // namespace xla_cc
