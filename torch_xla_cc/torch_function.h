// A mode of torch.overrides that looks at few of the calls, and costs the others little.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace xla_cc {

// Such a mode's __torch_function__, for types.MethodType to bind. It sees each call of torch, and
// each x.shape: thousands a step, for which a function in Python takes 2 us each. This one makes
// the call, but where `handlers` has the function, or the call has the keyword `keyword`: then
// handler(function, arguments, keywords) makes it, of a keyword `other`.
py::object TorchFunction(const py::dict& handlers, const py::str& keyword, const py::object& other);

}  // namespace xla_cc
