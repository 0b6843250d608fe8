// collective_broadcast: every rank gets the operand of its group's root.
#pragma once

#include "lowering/model/groups.h"
#include "lowering/model/verify.h"
#include "lowering/rules/ways.h"

namespace xla_cc {

struct CollectiveBroadcast {
  static constexpr const char* kName = "collective_broadcast";
  // A rank; in each group, the member at this rank's position is the root. Verify turns it into
  // that position: ranks of different groups may each name their own root, and mean the same call.
  int64_t root = 0;
  Groups groups;

  template <class Self, class Visitor>
  static void Fields(Self& self, Visitor&& visit) {
    visit("root", self.root);
    visit("groups", self.groups);
  }

  Status Verify(const Call& call);
  std::vector<hlo::Shape> Results(const Call& call) const { return call.operands; }
  hlo::Values LowerNative(Emitter& e, const hlo::Values& xs) const;
  static const Ways<CollectiveBroadcast>& Fallback();
};

}  // namespace xla_cc
