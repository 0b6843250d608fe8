#pragma once

#include <cstdint>
#include <functional>

#include "lowering/hlo/builder.h"
#include "lowering/target.h"

namespace xla_cc {

// Whether an instruction with a pinned layout has to go along the first dimension instead of `dim`,
// of which every rank holds 1 / parts of the operands' (all-gather: 1) before or after it.
//
// A TPU keeps the last two dimensions in tiles of 8 by 128. Where blocks are not whole tiles its
// compiler refuses an all-gather along them, of three dimensions or more, and makes an all-reduce
// of a reduce-scatter.
bool GoesToFront(const Target& target, const hlo::Values& xs, int64_t dim, int64_t parts);

// `run` on operands whose `dim` is their first one; its results with that dimension in its place.
hlo::Values AlongFront(hlo::Computation& c, const hlo::Values& xs, int64_t dim,
                       const std::function<hlo::Values(const hlo::Values&)>& run);

// A TPU's compiler makes an all-reduce of most reduce-scatters of three dimensions or more, and of
// few that have two: along the first dimension they can go as rows of the last.
bool GoesByRows(const Target& target, const hlo::Values& xs, int64_t dim);

// `run` on operands of two dimensions, of which the last is theirs; its results, of which every
// rank holds 1 / parts, with the others again.
hlo::Values ByRows(hlo::Computation& c, const hlo::Values& xs, int64_t parts,
                   const std::function<hlo::Values(const hlo::Values&)>& run);

}  // namespace xla_cc
