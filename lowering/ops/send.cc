#include "lowering/ops/send.h"

#include "lowering/errors.h"

namespace xla_cc {

using hlo::Value;
using hlo::Values;

Status ResolveChannel(const std::string& op, int64_t world_size, int64_t channel, Pairs* pairs) {
  if (channel < 1 || channel > INT32_MAX) {
    return Refuse({"S1", op, "channel", std::to_string(channel), "1 to 2147483647",
                   "Number channels from 1"});
  }
  if (pairs->empty()) {
    return Refuse({"S1", op, "pairs", "[]", "at least one (source, target) pair",
                   "Name who sends to whom: Channel(pairs=[(0, 1)])"});
  }
  return ResolvePairs(op, world_size, pairs);
}

Status Send::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  return ResolveChannel(kName, call.world_size(), channel, &pairs);
}

Values Send::LowerNative(Emitter& e, const Values& xs) const {
  e.Send(xs[0], channel, pairs);
  return xs;
}

const Ways<Send>& Send::Fallback() {
  static const Ways<Send> ways = {
      {{"left to its recv", &Always<Send>,
        // send = nothing yet: the matching recv takes the operand, and is the whole transfer.
        [](const Send&, Emitter&, const Value& x) { return x; }}},
      {}};
  return ways;
}

}  // namespace xla_cc
