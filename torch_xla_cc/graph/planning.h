// From a call to its plan.
#pragma once

#include <string>
#include <vector>

#include "torch_xla_cc/graph/plan_cache.h"

namespace xla_cc {

// The plan of a call, lowered if it is new. Takes and releases the interpreter lock itself: it is
// held on entry and on return, and not while lowering. Throws BadValue.
PlanPtr PlanFor(const Collective& collective, const std::vector<hlo::Shape>& operands);

// While it lives, modules of this thread carry the name of a group in the place of a file: where a
// device knows nothing but its programs, it tells calls of groups of the same ranks apart by that.
class PlanningIn {
 public:
  explicit PlanningIn(std::string group);
  ~PlanningIn();
  PlanningIn(const PlanningIn&) = delete;
  PlanningIn& operator=(const PlanningIn&) = delete;

 private:
  std::string before_;
};

// Modules carry the caller's file and line; one is made per call site then.
void SetDebug(bool debug);
bool Debug();

}  // namespace xla_cc
