#include "lowering/ops/recv.h"

#include "lowering/ops/collective_permute.h"
#include "lowering/ops/send.h"
#include "lowering/rules/lower_op.h"

namespace xla_cc {

using hlo::Values;

Status Recv::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  return ResolveChannel(kName, call.world_size(), channel, &pairs);
}

Values Recv::LowerNative(Emitter& e, const Values& xs) const {
  return {e.Recv(xs[0].shape, channel, pairs)};
}

// send ; recv = collective_permute of what is sent.
Values Recv::LowerFallback(Emitter& e, const Values& xs) const {
  return Lower(CollectivePermute{pairs}, e, xs);
}

}  // namespace xla_cc
