// What a rank has in its graph, run or thrown away for a call of torch.distributed.
#pragma once

#include <atomic>

#include "torch_xla_cc/groupcall/group_call.h"

namespace xla_cc {

// Runs what the group's own rank has pending, and what it reads of it. Where ranks are threads they
// meet, for no longer than that.
void RunPending(const RankGroup& group, Timeout timeout);
// Whether so many calls are pending that they should run before there are more: a program that
// never reads or steps would else become one without end.
bool LongPending();
// Whether ranks, processes that have to run the same programs, agree on what they run of what is
// pending; and whether they did, until it showed that they make different calls.
bool Agreeing();
bool GaveUp();
// Before this rank, a process, waits for something that is not in its graph: others that wait for
// what it has pending may be needed for it to come.
void RunPendingBeforeWaiting();
// The same where somebody asks whether it has come, which may be often: the first time.
void RunPendingOnce(std::atomic<bool>& asked);
// The same at the end of a group, whose error, if there is one, others have told or will tell.
// If it is the one whose ranks agree on what they run, they no longer do.
void RunPendingAtEnd(const RankGroup& group);
// Throws it away: a later step shall not run it.
void DropPending(const RankGroup& group);

}  // namespace xla_cc
