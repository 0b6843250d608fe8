// Runs of rows that differ from rank to rank, moved by one program for all: what the fallbacks of
// the uneven ops are built of. All on dimension 0, bit by bit.
#pragma once

#include "lowering/model/sizes.h"
#include "lowering/rules/by_rank.h"

namespace xla_cc {

// x with zeros from this rank's row rows[rank] on.
hlo::Value KeepFirstRows(hlo::Computation& c, const hlo::Value& x, const Sizes& rows);

// A shape of so many rows.
hlo::Shape WithRows(const hlo::Shape& shape, int64_t rows);

// x with zeros behind it, as far as `rows` rows; or its first so many.
hlo::Value WithRows(hlo::Computation& c, const hlo::Value& x, int64_t rows);

// For each i, sizes[rank][i] rows of x from starts[rank][i] on: one behind the other, then zeros up
// to `rows` rows.
hlo::Value PackRows(hlo::Computation& c, const hlo::Value& x, const RankRows& starts,
                    const RankRows& sizes, int64_t rows);

// For each i, `size` rows of x from starts[rank][i] on, one behind the other. Behind the end of x
// are zeros.
hlo::Value TakeEvenBlocks(hlo::Computation& c, const hlo::Value& x, const RankRows& starts,
                          int64_t size);

// Values one behind the other.
hlo::Value JoinRows(hlo::Computation& c, hlo::Values parts);

// The most rows that any rank has in each column.
std::vector<int64_t> Most(const RankRows& sizes);

// Where the i-th of `count` blocks of `size` rows begins, for every rank.
RankRows EvenStarts(int64_t world_size, int64_t count, int64_t size);

}  // namespace xla_cc
