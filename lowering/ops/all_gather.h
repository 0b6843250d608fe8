// all_gather: every rank gets the operands of its group, concatenated in group order along `dim`.
#pragma once

#include "lowering/model/groups.h"
#include "lowering/model/verify.h"
#include "lowering/rules/ways.h"

namespace xla_cc {

struct AllGather {
  static constexpr const char* kName = "all_gather";
  int64_t dim = 0;
  Groups groups;

  template <class Self, class Visitor>
  static void Fields(Self& self, Visitor&& visit) {
    visit("dim", self.dim);
    visit("groups", self.groups);
  }

  Status Verify(const Call& call);
  std::vector<hlo::Shape> Results(const Call& call) const;
  hlo::Values LowerNative(Emitter& e, const hlo::Values& xs) const;
  static const Ways<AllGather>& Fallback();
};

}  // namespace xla_cc
