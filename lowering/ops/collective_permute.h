// collective_permute: the operand of each pair's source goes to its target; a rank that is no
// target gets zeros.
#pragma once

#include "lowering/model/verify.h"
#include "lowering/rules/emitter.h"

namespace xla_cc {

struct CollectivePermute {
  static constexpr const char* kName = "collective_permute";
  Pairs pairs;

  template <class Self, class Visitor>
  static void Fields(Self& self, Visitor&& visit) {
    visit("pairs", self.pairs);
  }

  Status Verify(const Call& call);
  std::vector<hlo::Shape> Results(const Call& call) const { return call.operands; }
  hlo::Values LowerNative(Emitter& e, const hlo::Values& xs) const;
  hlo::Values LowerFallback(Emitter& e, const hlo::Values& xs) const;
};

}  // namespace xla_cc
