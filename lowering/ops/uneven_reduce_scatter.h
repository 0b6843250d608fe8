// uneven_reduce_scatter: the reduction of the group's operands, of whose rows the first member gets
// the first sizes[rank], the next one the next, and so on.
//
// All ranks run one program, so operands and results have one shape on all: that of the largest.
// Behind the rows of a result are zeros; what is behind those of an operand has no influence.
#pragma once

#include "lowering/model/reduction.h"
#include "lowering/model/sizes.h"
#include "lowering/rules/ways.h"

namespace xla_cc {

struct UnevenReduceScatter {
  static constexpr const char* kName = "uneven_reduce_scatter";
  Reduction reduction;
  Sizes sizes;  // by rank of the world: the rows that it gets
  Groups groups;

  template <class Self, class Visitor>
  static void Fields(Self& self, Visitor&& visit) {
    visit("reduce_type", self.reduction.kind);
    visit("scale", self.reduction.scale);
    visit("factor", self.reduction.factor);
    visit("sizes", self.sizes);
    visit("groups", self.groups);
  }

  Status Verify(const Call& call);
  std::vector<hlo::Shape> Results(const Call& call) const;
  hlo::Values LowerNative(Emitter& e, const hlo::Values& xs) const;
  static const Ways<UnevenReduceScatter>& Fallback();
};

}  // namespace xla_cc
