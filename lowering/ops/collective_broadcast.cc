#include "lowering/ops/collective_broadcast.h"

#include <algorithm>

#include "lowering/errors.h"
#include "lowering/ops/all_reduce.h"
#include "lowering/rules/bits.h"
#include "lowering/rules/by_rank.h"
#include "lowering/rules/lower_op.h"

namespace xla_cc {

using hlo::Computation;
using hlo::ElementType;
using hlo::Value;
using hlo::Values;

Status CollectiveBroadcast::Verify(const Call& call) {
  XLA_CC_RETURN_IF_ERROR(RequireOperands(kName, call));
  XLA_CC_RETURN_IF_ERROR(groups.Resolve(kName, call.world_size()));
  if (root < 0 || root >= call.world_size()) {
    return Refuse({"B1", kName, "root", std::to_string(root),
                   "a rank of the world, 0 to " + std::to_string(call.world_size() - 1),
                   "Name the rank that has the values"});
  }
  if (groups.Sizes(call.world_size())[root] == 0) {
    return Refuse({"B2", kName, "root", std::to_string(root),
                   "in a group, and " + groups.ToString() + " leaves it out",
                   "Name a rank of a group"});
  }
  const int64_t position = groups.Positions(call.world_size())[root];
  for (const auto& group : groups.list()) {
    if (position >= static_cast<int64_t>(group.size())) {
      return Refuse({"B2", kName, "root", std::to_string(root),
                     "at a position that every group has; it is number " +
                         std::to_string(position) + " of its own, and [" + hlo::ToString(group) +
                         "] is shorter",
                     "Put the roots first in their groups"});
    }
  }
  root = position;
  return Status::Ok();
}

Values CollectiveBroadcast::LowerNative(Emitter& e, const Values& xs) const {
  // The instruction's root is the first of the group.
  std::vector<std::vector<int64_t>> rooted = groups.Expanded(e.world_size());
  for (auto& group : rooted) {
    std::rotate(group.begin(), group.begin() + root, group.begin() + root + 1);
  }
  return {e.CollectiveBroadcast(xs[0], root == 0 ? groups : Groups(rooted))};
}

namespace {

// collective_broadcast = all_reduce of the root's bits and everybody else's zeros.
Value BySum(const CollectiveBroadcast& op, Emitter& e, const Value& x) {
  const std::vector<int64_t> positions = op.groups.Positions(e.world_size());
  const std::vector<int64_t> sizes = op.groups.Sizes(e.world_size());
  // A rank in no group keeps what it has.
  std::vector<int64_t> keeps(positions.size());
  for (size_t rank = 0; rank < keeps.size(); ++rank) {
    keeps[rank] = positions[rank] == op.root || sizes[rank] == 0;
  }
  return MapBits(e.c(), x, [&](const Value& bits) {
    return LowerOne(AllReduce{{}, op.groups}, e, KeepByRank(e.c(), bits, keeps));
  });
}

}  // namespace

const Ways<CollectiveBroadcast>& CollectiveBroadcast::Fallback() {
  static const Ways<CollectiveBroadcast> ways = {
      {{"as a sum", &Always<CollectiveBroadcast>, &BySum}}, {}};
  return ways;
}

}  // namespace xla_cc
