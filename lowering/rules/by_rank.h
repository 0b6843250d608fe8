// What fallback rules are built of, besides other ops: numbers and blocks that are looked up by the
// rank, since every rank runs the same program.
#pragma once

#include <vector>

#include "lowering/hlo/builder.h"
#include "lowering/model/groups.h"
#include "lowering/model/rank_rows.h"

namespace xla_cc {

// A scalar that is looked up by this rank's number in a table with one entry a rank.
hlo::Value ByRank(hlo::Computation& c, const std::vector<int64_t>& table);

// This rank's own row, s32[n].
hlo::Value RowByRank(hlo::Computation& c, const RankRows& rows);

// x where the entry of this rank is not zero, else zeros (or `other`). Bit by bit.
hlo::Value KeepByRank(hlo::Computation& c, const hlo::Value& x, const std::vector<int64_t>& keep);
hlo::Value ChooseByRank(hlo::Computation& c, const std::vector<int64_t>& choose,
                        const hlo::Value& x, const hlo::Value& other);

// Where the blocks of those numbers begin, if each is of `size`; and x as one block of several,
// with a dimension of one in front.
std::vector<int64_t> OffsetsOf(std::vector<int64_t> numbers, int64_t size);
hlo::Value AsBlock(hlo::Computation& c, const hlo::Value& x);

// The block of `size` along `dim` that begins at this rank's offset; and x with a block written
// there.
hlo::Value BlockByRank(hlo::Computation& c, const hlo::Value& x, int64_t dim, int64_t size,
                       const std::vector<int64_t>& offsets);
hlo::Value WithBlockByRank(hlo::Computation& c, const hlo::Value& x, const hlo::Value& block,
                           int64_t dim, const std::vector<int64_t>& offsets);

// x along `dim` in blocks of `size`: the i-th of the result is number rows[rank][i] of x. To
// reorder is to take all of them.
hlo::Value TakeBlocks(hlo::Computation& c, const hlo::Value& x, int64_t dim, int64_t size,
                      const RankRows& rows);
hlo::Value ReorderBlocks(hlo::Computation& c, const hlo::Value& x, int64_t dim,
                         const RankRows& rows);

// By rank, for each member of its group in rank order: its position in the group, and the other way
// round. They turn blocks in rank order into blocks in group order, and back.
RankRows ToGroupOrder(const Groups& groups, int64_t world_size);
RankRows ToRankOrder(const Groups& groups, int64_t world_size);

}  // namespace xla_cc
