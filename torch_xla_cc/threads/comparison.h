// Who of the ranks may run what they have pending: pure functions of what all of them have issued.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
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

  // Captured by torch.compile, of whichever group has that name when it runs.
  static constexpr uint64_t kAnyGroup = ~uint64_t{0};
  bool MayBeOfGroupOf(const IssuedCall& other) const {
    return group == other.group || group == kAnyGroup || other.group == kAnyGroup;
  }
};

// A rank, as far as others depend on it.
struct RankState {
  std::vector<IssuedCall> pending;
  IssuedCall last;
  bool waiting = false;   // to run what is pending
  bool finished = false;  // comes no more
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

// Whether two calls are of one group, in which this rank is.
bool OfOneGroup(const IssuedCall& a, const IssuedCall& b, int64_t rank, size_t world_size);

// Who loses something if these ranks lose what they have pending.
struct Concern {
  bool of_launch = false;  // some of it is of no group of torch.distributed
  std::set<int64_t> now;   // they have their part in it pending, lose what they have too, and so on
  std::map<int64_t, std::vector<IssuedCall>> later;  // others, once they come to a group of these
};
Concern Concerned(const RankStates& ranks, const std::vector<int64_t>& whose);

// Whether both have a collective of one group pending.
bool HaveOneInCommon(const RankStates& ranks, int64_t a, int64_t b);

// What a rank says that has waited as long as `limit` for others.
Failure Missing(const RankStates& ranks, int64_t rank, std::chrono::milliseconds limit,
                bool of_launch);

}  // namespace xla_cc
