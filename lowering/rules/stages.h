// all_gather and reduce_scatter of blocks in one stage for each axis of a torus.
//
// With several shares the data goes in as many parts, each of which begins along another axis, so
// that all axes carry bytes at once: half of it goes along x and then along y, half along y and
// then along x.
#pragma once

#include "lowering/model/tiles.h"
#include "lowering/model/torus.h"
#include "lowering/rules/emitter.h"

namespace xla_cc {

// A block [1, rows, columns] of each rank: [members, rows, columns], in group order.
hlo::Value GatherInStages(Emitter& e, const hlo::Value& block, const Groups& groups,
                          const Boxes& boxes, const Parts& cut);
// [members, rows, columns], in group order: the own block, reduced.
hlo::Value ScatterInStages(Emitter& e, const hlo::Value& blocks, ReduceKind kind,
                           const Groups& groups, const Boxes& boxes, const Parts& cut);

}  // namespace xla_cc
