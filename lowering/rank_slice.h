// A slice that begins elsewhere on each rank, in a program that all of them share: what a client
// writes as chunks[rank] would make a program of every rank's own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lowering/hlo/shape.h"
#include "lowering/status.h"
#include "lowering/target.h"

namespace xla_cc {

struct RankSlice {
  int64_t dim = 0;
  int64_t size = 0;             // of the slice along it
  std::vector<int64_t> starts;  // by rank of the target
};

// A module (HloModuleProto) that takes `whole` and gives the slice.
Result<std::string> LowerRankSlice(const RankSlice& slice, const hlo::Shape& whole,
                                   const Target& target);
// The way back, that of gradients: it takes the slice and gives `whole`, zeros around it.
Result<std::string> LowerRankSliceGradient(const RankSlice& slice, const hlo::Shape& whole,
                                           const Target& target);

}  // namespace xla_cc
