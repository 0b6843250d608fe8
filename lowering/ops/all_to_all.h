// all_to_all: each operand is cut into one block per group member along `split_dim`; block i goes
// to member i, and what arrives is concatenated in group order along `concat_dim`.
#pragma once

#include "lowering/model/groups.h"
#include "lowering/model/verify.h"
#include "lowering/rules/ways.h"

namespace xla_cc {

struct AllToAll {
  static constexpr const char* kName = "all_to_all";
  int64_t split_dim = 0;
  int64_t concat_dim = 0;
  std::optional<int64_t> split_count;  // checked against the groups, and nothing else
  Groups groups;

  template <class Self, class Visitor>
  static void Fields(Self& self, Visitor&& visit) {
    visit("split_dim", self.split_dim);
    visit("concat_dim", self.concat_dim);
    visit("split_count", self.split_count);
    visit("groups", self.groups);
  }

  Status Verify(const Call& call);
  std::vector<hlo::Shape> Results(const Call& call) const;
  hlo::Values LowerNative(Emitter& e, const hlo::Values& xs) const;
  static const Ways<AllToAll>& Fallback();
};

// Whether an exchange over these groups is one instruction of the target, or one in rows and one in
// columns.
bool Exchanges(const Emitter& e, const Groups& groups, hlo::ElementType type);

}  // namespace xla_cc
