// Detours that the tiles of a TPU ask for: an instruction along another dimension, or on a matrix.
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
bool MustGoFirst(const Target& target, const hlo::Values& xs, int64_t dim, int64_t parts);

// `run` on operands whose `dim` is their first one; its results with that dimension in its place.
hlo::Values WithDimensionFirst(hlo::Computation& c, const hlo::Values& xs, int64_t dim,
                               const std::function<hlo::Values(const hlo::Values&)>& run);

// A TPU's compiler makes an all-reduce of reduce-scatters of vectors, and of most of three
// dimensions or more, but of few that have two. So along the first dimension these go as rows: of
// the last dimension, or of a vector, where the blocks are whole tiles, of 128 (the same bytes in
// memory).
bool MustBeMatrix(const Target& target, const hlo::Values& xs, int64_t dim, int64_t parts);

// `run` on those rows; its results, of which every rank holds 1 / parts, as `xs` have them.
hlo::Values AsMatrix(hlo::Computation& c, const hlo::Values& xs, int64_t parts,
                     const std::function<hlo::Values(const hlo::Values&)>& run);

}  // namespace xla_cc
