// all_reduce: every rank gets the reduction, element by element, of its group's operands.
#pragma once

#include "lowering/model/groups.h"
#include "lowering/model/reduction.h"
#include "lowering/model/verify.h"
#include "lowering/rules/ways.h"

namespace xla_cc {

struct AllReduce {
  static constexpr const char* kName = "all_reduce";
  Reduction reduction;
  Groups groups;

  template <class Self, class Visitor>
  static void Fields(Self& self, Visitor&& visit) {
    visit("reduce_type", self.reduction.kind);
    visit("scale", self.reduction.scale);
    visit("factor", self.reduction.factor);
    visit("groups", self.groups);
  }

  Status Verify(const Call& call);
  std::vector<hlo::Shape> Results(const Call& call) const { return call.operands; }
  hlo::Values LowerNative(Emitter& e, const hlo::Values& xs) const;
  static const Ways<AllReduce>& Fallback();
};

}  // namespace xla_cc
