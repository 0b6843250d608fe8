#include "lowering/rules/filled_up.h"

#include <algorithm>

#include "lowering/rules/by_rank.h"

namespace xla_cc {

using hlo::Computation;
using hlo::Value;

bool FilledUp::Pays(int64_t members) const {
  // It goes over the wire twice: among what is reduced, and as what the ranks hand on.
  constexpr int64_t kFortieth = 40;
  const int64_t more = whole - part;
  return more * kFortieth <= part && (members - 1) * more <= whole;
}

Value FillUp(Computation& c, const Value& x, int64_t dim, int64_t members, const FilledUp& sizes) {
  return c.Pad(x, dim, members * (sizes.whole - sizes.part));
}

Value OwnPart(Emitter& e, const Value& y, int64_t dim, const Groups& groups,
              const FilledUp& sizes) {
  const int64_t more = sizes.whole - sizes.part;
  if (more == 0) return y;
  Computation& c = e.c();
  const int64_t members = groups.Size(e.world_size());
  const int64_t most = (members - 1) * more;  // that one rank hands on
  Pairs pairs;
  for (const std::vector<int64_t>& group : groups.Expanded(e.world_size())) {
    for (size_t i = 1; i < group.size(); ++i) pairs.emplace_back(group[i - 1], group[i]);
  }
  std::sort(pairs.begin(), pairs.end());
  const Value end = c.Slice(y, dim, sizes.whole - most, sizes.whole);
  const Value both = c.Concatenate({e.CollectivePermute(end, pairs), y}, dim);
  std::vector<int64_t> offsets = groups.Positions(e.world_size());
  for (int64_t& offset : offsets) offset = most - offset * more;
  return BlockByRank(c, both, dim, sizes.part, offsets);
}

}  // namespace xla_cc
