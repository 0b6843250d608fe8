// A collective into torch_xla's graph: find or lower its plan, attach it, note it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <vector>

#include "torch_xla_cc/graph/plan_cache.h"
#include "torch_xla_cc/site.h"

namespace xla_cc {

// Puts the collective into the graph; one new result a tensor. Holds the interpreter lock.
// Throws BadValue, FallbackForbidden, RanksDisagree where ranks are threads, or what Python raises.
std::vector<py::object> Attach(const Collective& collective,
                               const std::vector<py::handle>& tensors);

// A tensor of x's elements in a buffer of its own. clone() and copy_() make none: torch_xla then
// holds two tensors of one buffer, which both lose when the second is changed in place.
at::Tensor Copied(const at::Tensor& x);

// The same for tensors that no Python object is at hand for.
std::vector<at::Tensor> AttachTensors(const Collective& collective,
                                      const std::vector<at::Tensor>& tensors);

// What this thread attaches is of this group of torch.distributed, as it was made this time; 0: of
// none. Groups of the same ranks are not one.
class AttachingFor {
 public:
  explicit AttachingFor(uint64_t group);
  ~AttachingFor();
  AttachingFor(const AttachingFor&) = delete;
  AttachingFor& operator=(const AttachingFor&) = delete;

 private:
  const uint64_t before_;
};

// Called before a collective is attached, where ranks are threads; what it gives is kept until it
// is. Throws if it may not be.
using IssueHook = std::shared_ptr<void> (*)(int64_t rank, const PlanPtr& plan, const Site& site,
                                            uint64_t group);
void SetIssueHook(IssueHook hook);

}  // namespace xla_cc
