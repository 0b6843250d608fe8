// collective_permute: the operand of each pair's source goes to its target; a rank that is no
// target gets zeros.
#pragma once

#include "lowering/model/verify.h"
#include "lowering/rules/ways.h"

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
  static const Ways<CollectivePermute>& Fallback();
};

// Whether the members of each group can meet all others in rounds of exchanges between two.
bool MeetsInRounds(const Groups& groups, const Emitter& e, hlo::ElementType type);

}  // namespace xla_cc
