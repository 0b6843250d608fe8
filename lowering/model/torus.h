// Groups of ranks as boxes of chips, and what the links between these carry.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lowering/model/groups.h"
#include "lowering/topology.h"

namespace xla_cc {

// The ranks along one axis, for every line of chips along it.
struct Stage {
  int64_t axis = 0;  // x is 0
  int64_t size = 1;  // ranks in each of the groups
  Groups groups;
  // Bytes that the busiest link carries if every rank gives one to all others of its group, and
  // steps from the first to the last of them.
  double load = 0;
  int64_t hops = 0;
};

// Groups of which each is a box of chips: the same numbers of them along each axis. A collective in
// such groups may go in one stage for each axis.
struct Boxes {
  std::vector<Stage> stages;  // of the axes along which a box has several chips, x first
  // Of each group, in group order: the place of each member in the box, of which those along x are
  // counted first.
  std::vector<std::vector<int64_t>> places;
  bool InOrder() const;  // group order is the order of places
  int64_t Members() const;

  // Data of so many units may go in parts, each of which begins with another stage. Units of each
  // part: so that the busiest link carries least. All in one part, or as many parts as there are
  // stages, of which some may be empty.
  std::vector<int64_t> Shares(int64_t units, bool in_parts, bool scatters) const;
  // Bytes that the busiest link carries then: of an all_gather of one byte a rank, or of a
  // reduce_scatter to one byte a rank.
  double Load(const std::vector<int64_t>& shares, bool scatters) const;
  // Steps from the first to the last rank of each stage, one stage after the other.
  int64_t Hops() const;
};
// None if the groups are no boxes, or the topology is not that of so many ranks.
std::optional<Boxes> BoxesOf(const Groups& groups, const Topology& topology, int64_t world_size);

// Whether they are boxes of which the chips stand in equal steps along each axis, the same in all.
bool AreEvenBoxes(const Groups& groups, const Topology& topology, int64_t world_size);

}  // namespace xla_cc
