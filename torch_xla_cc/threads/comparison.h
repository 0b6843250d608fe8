// Who of the ranks may run what they have pending: pure functions of what all of them have issued.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "lowering/lower.h"
#include "torch_xla_cc/threads/failure.h"

namespace xla_cc {

// A collective that a rank has issued. Calls that were found in one cache are one object.
struct IssuedCall {
  std::shared_ptr<const Lowered> lowered;
  Site site;
  uint64_t group = 0;  // of torch.distributed, if it is of one (graph/attach.h)
  // The how many-th of its group it is, or of these ranks if it is of none: the world counts. Ranks
  // of which one has lost a call to an error of its own differ in it: the next one would be taken
  // for that.
  uint64_t order = 0;
};

// The ranks that a call of this rank is among, in order.
std::vector<int64_t> RanksOf(const IssuedCall& issued, int64_t rank, size_t world_size);

// A rank, as far as others depend on it.
struct RankState {
  std::vector<IssuedCall> pending;
  IssuedCall last;
  bool waiting = false;   // to run what is pending
  bool finished = false;  // comes no more
  bool lost = false;      // what is pending, and is told when it comes
  Site waits_at;          // or has finished at
};
using RankStates = std::vector<const RankState*>;  // by rank

struct Verdict {
  std::vector<int64_t> ranks;  // that go on, together
  Failure failure;             // or why some never can
  std::vector<int64_t> whose;  // failure it is
};

// A rank goes on if it waits, and all its peers do, with as many calls, and no two differ.
Verdict Judge(const RankStates& ranks);

// What is lost with what these ranks have pending, and with these groups of torch.distributed,
// which cannot be used any more: a group of which a rank loses a call breaks, or its next would be
// taken for that. Who has a call of such a group pending loses what it has, too, and so on.
struct Loss {
  bool of_launch = false;  // some of it is of no group of torch.distributed
  std::set<int64_t> ranks;
  std::set<uint64_t> groups;
};
Loss LossOf(const RankStates& ranks, std::set<int64_t> whose, std::set<uint64_t> groups);

// What a rank says that has waited as long as `limit` for others.
Failure Missing(const RankStates& ranks, int64_t rank, std::chrono::milliseconds limit,
                bool of_launch);

}  // namespace xla_cc
