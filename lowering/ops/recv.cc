#include "lowering/ops/recv.h"

#include "lowering/ops/collective_permute.h"
#include "lowering/ops/send.h"
#include "lowering/rules/lower_op.h"

namespace xla_cc {

using hlo::Value;
using hlo::Values;

Status Recv::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  return ResolveChannel(kName, call.world_size(), channel, &pairs);
}

Values Recv::LowerNative(Emitter& e, const Values& xs) const {
  return {e.Recv(xs[0].shape, channel, pairs)};
}

const Ways<Recv>& Recv::Fallback() {
  static const Ways<Recv> ways = {{{"as a collective_permute", &Always<Recv>,
                                    // send ; recv = collective_permute of what is sent.
                                    [](const Recv& op, Emitter& e, const Value& x) {
                                      return LowerOne(CollectivePermute{op.pairs}, e, x);
                                    }}},
                                  {}};
  return ways;
}

}  // namespace xla_cc
