// Where ranks meet in a lowered call: its collective instructions, in the order of their emission.
// Ranks whose lists of groups differ elsewhere may have other instructions for the same call.
#pragma once

#include <string>
#include <vector>

#include "lowering/model/groups.h"

namespace xla_cc {

struct Encounter {
  std::string what;  // the opcode and its results: "all-gather f32[4]"
  Groups groups;     // as the instruction has them: an order that differs never meets
};
using Encounters = std::vector<Encounter>;

// For people, with the groups of a rank: "all-gather f32[4] of [0,1]; all-reduce f32[2] of [0,1]".
std::string ToString(const Encounters& encounters, int64_t rank, int64_t world_size);

}  // namespace xla_cc
