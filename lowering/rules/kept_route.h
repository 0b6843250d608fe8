// Which way an all_gather or reduce_scatter goes on a target whose compiler may lose it.
#pragma once

#include <optional>
#include <vector>

#include "lowering/capability/kept.h"
#include "lowering/model/tiles.h"
#include "lowering/model/torus.h"

namespace xla_cc {

struct Route {
  enum Way { kAsItIs, kInBlocks, kInStages };
  Way way = kAsItIs;
  std::optional<Boxes> boxes;  // of the stages
  Parts parts;                 // of the blocks, which begin with each
};

// The fastest by the model of docs/spec.md, "Forms that a TPU keeps".
Route RouteOf(const Instruction& instruction, const Groups& groups);

}  // namespace xla_cc
