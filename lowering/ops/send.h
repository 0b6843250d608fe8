// send: the operand leaves through a channel, to the target that the channel's pairs name for this
// rank. The result is the operand.
#pragma once

#include "lowering/model/verify.h"
#include "lowering/rules/ways.h"

namespace xla_cc {

// (S1) a positive channel, and at least one pair.
Status ResolveChannel(const std::string& op, int64_t world_size, int64_t channel, Pairs* pairs);

struct Send {
  static constexpr const char* kName = "send";
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
  static const Ways<Send>& Fallback();
};

}  // namespace xla_cc
