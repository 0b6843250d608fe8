// Numbers of rows by rank, for the ops whose ranks give or take different amounts. A row is all
// that lies at one index of dimension 0.
#pragma once

#include <string>
#include <vector>

#include "lowering/model/groups.h"
#include "lowering/model/rank_rows.h"
#include "lowering/model/verify.h"

namespace xla_cc {

using Sizes = std::vector<int64_t>;                    // by rank
using SizeMatrix = std::vector<std::vector<int64_t>>;  // by sender, then by receiver

// For people; long ones are cut, and end in a hash of all of it.
std::string ToString(const Sizes& sizes);
std::string ToString(const SizeMatrix& sizes);

// (V1) a size for each rank of the world; (V3) none for ranks in no group, or between groups.
// Resolves the groups as well.
Status ResolveSizes(const std::string& op, int64_t world_size, const Sizes& sizes, Groups* groups);
Status ResolveSizes(const std::string& op, int64_t world_size, const SizeMatrix& sizes,
                    Groups* groups);

// (V2) every operand has so many rows; `what` says why.
Status RequireRows(const std::string& op, const Call& call, int64_t rows, const std::string& what);

// By rank and position: the sizes of the members of the rank's group, 0 for absent ones.
RankRows InGroups(const Sizes& sizes, const Groups& groups, int64_t world_size);
// What each rank sends to the members of its group, and what it receives from them.
RankRows SentInGroups(const SizeMatrix& sizes, const Groups& groups, int64_t world_size);
RankRows ReceivedInGroups(const SizeMatrix& sizes, const Groups& groups, int64_t world_size);

// Of each row: where each size begins when they lie one behind the other; their sum, by rank.
RankRows Starts(const RankRows& sizes);
Sizes Sums(const RankRows& sizes);
Sizes Sums(const SizeMatrix& sizes);
int64_t Largest(const Sizes& sizes);
int64_t Largest(const SizeMatrix& sizes);

}  // namespace xla_cc
