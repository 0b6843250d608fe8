// Arrays as one block for each member of a group: [members, rows, columns], in whole tiles.
#pragma once

#include <vector>

#include "lowering/hlo/builder.h"
#include "lowering/model/tiles.h"

namespace xla_cc {

// The parts of x along `dim`, one a member, each as a Block.
hlo::Value ToBlocks(hlo::Computation& c, const hlo::Value& x, int64_t dim, int64_t members);
// Back to parts: [members, ...].
hlo::Value FromBlocks(hlo::Computation& c, const hlo::Value& blocks, const hlo::Shape& part);
// [n, columns] with narrow rows, of which n is a multiple of a tile's lanes, as [..., 128]: in the
// order in which a compiler lays it out. And back.
hlo::Value Folded(hlo::Computation& c, const hlo::Value& x);
hlo::Value Unfolded(hlo::Computation& c, const hlo::Value& y, int64_t columns);
// Parts [members, ...], one after the other along `dim`.
hlo::Value Joined(hlo::Computation& c, const hlo::Value& parts, const hlo::Shape& part,
                  int64_t dim);

}  // namespace xla_cc
