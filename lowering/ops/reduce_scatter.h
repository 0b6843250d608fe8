// reduce_scatter: the reduction of the group's operands, of which every rank gets one block of
// `dim`: the i-th of the group the i-th block.
#pragma once

#include "lowering/model/groups.h"
#include "lowering/model/reduction.h"
#include "lowering/model/verify.h"
#include "lowering/rules/ways.h"

namespace xla_cc {

struct ReduceScatter {
  static constexpr const char* kName = "reduce_scatter";
  Reduction reduction;
  int64_t dim = 0;
  std::optional<int64_t> shard_count;  // checked against the groups, and nothing else
  Groups groups;

  template <class Self, class Visitor>
  static void Fields(Self& self, Visitor&& visit) {
    visit("reduce_type", self.reduction.kind);
    visit("scale", self.reduction.scale);
    visit("factor", self.reduction.factor);
    visit("dim", self.dim);
    visit("shard_count", self.shard_count);
    visit("groups", self.groups);
  }

  Status Verify(const Call& call);
  std::vector<hlo::Shape> Results(const Call& call) const;
  hlo::Values LowerNative(Emitter& e, const hlo::Values& xs) const;
  static const Ways<ReduceScatter>& Fallback();
};

}  // namespace xla_cc
