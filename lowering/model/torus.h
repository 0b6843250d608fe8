// Groups of ranks as boxes of chips, and what the links between these carry.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lowering/model/groups.h"
#include "lowering/topology.h"

namespace xla_cc {

// What a collective in groups of ranks asks of the links along one axis.
struct Line {
  int64_t size = 1;  // ranks of a group along it
  // Bytes that the busiest link carries if every rank gives one to all others of its group there,
  // and steps from the first to the last of them.
  double load = 0;
  int64_t hops = 0;
};

// Groups of which each is a box of chips: the same numbers of them along each axis.
struct Boxes {
  std::vector<Line> lines;  // of the axes along which a box has several chips, x first

  // Bytes that the busiest link carries: of an all_gather of one byte a rank, or of a
  // reduce_scatter to one. At the least there is: as if the data went in parts, along the axes in
  // several orders.
  double Load() const;
  int64_t Hops() const;  // along all axes
};

// None if the groups are no boxes, or the topology is not that of so many ranks.
std::optional<Boxes> BoxesOf(const Groups& groups, const Topology& topology, int64_t world_size);

// A group of all ranks as pairs, and those that are the first or the second of theirs.
struct Neighbours {
  Groups pairs;   // [0,1] [2,3] ...
  Groups others;  // [0,2,...] [1,3,...]
};

// In the order of the group. None if these are no even boxes: the two do not sit side by side.
std::optional<Neighbours> NeighboursOf(const Groups& world, const Topology& topology,
                                       int64_t world_size);

// Whether they are boxes of which the chips stand in equal steps along each axis, the same in all.
bool AreEvenBoxes(const Groups& groups, const Topology& topology, int64_t world_size);

}  // namespace xla_cc
