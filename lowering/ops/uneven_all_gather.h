// uneven_all_gather: every rank gets the rows of its group's members, each of whom gives another
// number of them, one behind the other in group order.
//
// All ranks run one program, so operands and results have one shape on all: that of the largest.
// An operand's first sizes[rank] rows count; behind the rows of a result are zeros.
#pragma once

#include "lowering/model/sizes.h"
#include "lowering/rules/ways.h"

namespace xla_cc {

struct UnevenAllGather {
  static constexpr const char* kName = "uneven_all_gather";
  Sizes sizes;  // by rank of the world: the rows that it gives
  Groups groups;

  template <class Self, class Visitor>
  static void Fields(Self& self, Visitor&& visit) {
    visit("sizes", self.sizes);
    visit("groups", self.groups);
  }

  Status Verify(const Call& call);
  std::vector<hlo::Shape> Results(const Call& call) const;
  hlo::Values LowerNative(Emitter& e, const hlo::Values& xs) const;
  static const Ways<UnevenAllGather>& Fallback();
};

}  // namespace xla_cc
