// uneven_all_to_all: each rank sends sizes[rank][j] rows to each member j of its group, and gets
// what the members send to it, one behind the other in group order.
//
// All ranks run one program, so operands and results have one shape on all: that of the largest.
// An operand's rows are in the order of their receivers. Behind the rows of a result are zeros.
#pragma once

#include "lowering/model/sizes.h"
#include "lowering/rules/ways.h"

namespace xla_cc {

struct UnevenAllToAll {
  static constexpr const char* kName = "uneven_all_to_all";
  SizeMatrix sizes;  // sizes[i][j]: the rows that rank i sends to rank j
  Groups groups;

  template <class Self, class Visitor>
  static void Fields(Self& self, Visitor&& visit) {
    visit("sizes", self.sizes);
    visit("groups", self.groups);
  }

  Status Verify(const Call& call);
  std::vector<hlo::Shape> Results(const Call& call) const;
  hlo::Values LowerNative(Emitter& e, const hlo::Values& xs) const;
  static const Ways<UnevenAllToAll>& Fallback();
};

}  // namespace xla_cc
