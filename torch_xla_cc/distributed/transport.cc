#include "torch_xla_cc/distributed/transport.h"

#include <torch/csrc/utils/pybind.h>

#include "torch_xla_cc/graph/fallback_policy.h"

namespace xla_cc {

void ThroughHost(GroupCall& call, const std::string& why) {
  call.through_host = true;
  const py::gil_scoped_acquire locked;
  OnHost(call.what, why, call.site);
}

}  // namespace xla_cc
