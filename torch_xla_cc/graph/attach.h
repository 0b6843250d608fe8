// A collective into torch_xla's graph: find or lower its plan, attach it, note it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <vector>

#include "torch_xla_cc/graph/plan_cache.h"
#include "torch_xla_cc/site.h"

namespace xla_cc {

// Puts the collective into the graph; one new result a tensor. Holds the interpreter lock.
// Throws BadValue, FallbackForbidden, RanksDisagree where ranks are threads, or what Python raises.
std::vector<py::object> Attach(const Collective& collective,
                               const std::vector<py::handle>& tensors);

// The same for tensors that no Python object is at hand for.
std::vector<at::Tensor> AttachTensors(const Collective& collective,
                                      const std::vector<at::Tensor>& tensors);

// Called before a collective is attached, where ranks are threads; what it gives is kept until it
// is. Throws if it may not be.
using IssueHook = std::shared_ptr<void> (*)(int64_t rank, const PlanPtr& plan, const Site& site);
void SetIssueHook(IssueHook hook);

}  // namespace xla_cc
