// recv: what the channel's source for this rank sends; zeros on a rank that is no target.
//
// The operand is what this rank itself sends through the channel. Devices with native send and
// recv do not read it; for the others the pair of calls is one collective_permute of it.
#pragma once

#include "lowering/model/verify.h"
#include "lowering/rules/ways.h"

namespace xla_cc {

struct Recv {
  static constexpr const char* kName = "recv";
  int64_t channel = 1;
  Pairs pairs;

  template <class Self, class Visitor>
  static void Fields(Self& self, Visitor&& visit) {
    visit("channel", self.channel);
    visit("pairs", self.pairs);
  }

  Status Verify(const Call& call);
  std::vector<hlo::Shape> Results(const Call& call) const { return call.operands; }
  hlo::Values LowerNative(Emitter& e, const hlo::Values& xs) const;
  static const Ways<Recv>& Fallback();
};

}  // namespace xla_cc
