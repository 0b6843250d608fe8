// What a rank has in its graph, run or thrown away for a call of torch.distributed.
#pragma once

#include "torch_xla_cc/groupcall/group_call.h"

namespace xla_cc {

// Runs what the group's own rank has pending, and what it reads of it. Where ranks are threads they
// meet, for no longer than that.
void RunPending(const RankGroup& group, Timeout timeout);
// Throws it away: a later step shall not run it.
void DropPending(const RankGroup& group);

}  // namespace xla_cc
