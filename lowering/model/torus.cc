#include "lowering/model/torus.h"

#include <algorithm>
#include <map>
#include <set>

namespace xla_cc {

namespace {

using Coordinates = std::vector<int64_t>;

int64_t IndexIn(const Coordinates& side, int64_t coordinate) {
  return std::lower_bound(side.begin(), side.end(), coordinate) - side.begin();
}

// A group as a box: the coordinates that occur along each axis, ascending.
struct Box {
  std::vector<Coordinates> members;
  std::vector<Coordinates> sides;

  Box(const std::vector<int64_t>& group, const Topology& topology) {
    std::vector<std::set<int64_t>> occurring(topology.axes.size());
    for (const int64_t rank : group) {
      members.push_back(topology.CoordinatesOf(rank));
      for (size_t axis = 0; axis < occurring.size(); ++axis) {
        occurring[axis].insert(members.back()[axis]);
      }
    }
    for (const std::set<int64_t>& side : occurring) sides.emplace_back(side.begin(), side.end());
  }
  Coordinates Sizes() const {
    Coordinates sizes;
    for (const Coordinates& side : sides) sizes.push_back(static_cast<int64_t>(side.size()));
    return sizes;
  }
  // By axis, from each chip to the next; 0 where there is one. None if steps differ.
  std::optional<Coordinates> Steps() const {
    Coordinates steps;
    for (const Coordinates& side : sides) {
      steps.push_back(side.size() == 1 ? 0 : side[1] - side[0]);
      for (size_t i = 1; i < side.size(); ++i) {
        if (side[i] - side[i - 1] != steps.back()) return std::nullopt;
      }
    }
    return steps;
  }
  // Members are on chips of their own: if there are as many as places, each place has one.
  bool IsFull() const {
    size_t places = 1;
    for (const Coordinates& side : sides) places *= side.size();
    return places == members.size();
  }
};

// Whether the members stand all around an axis that wraps, in equal steps.
bool GoesAround(const Axis& axis, const Coordinates& group) {
  const auto members = static_cast<int64_t>(group.size());
  if (!axis.wraps || axis.size % members != 0) return false;
  for (int64_t i = 0; i < members; ++i) {
    if (group[i] != group[0] + i * (axis.size / members)) return false;
  }
  return true;
}

// Bytes on the busiest link of one line of chips, on which the members of groups stand so.
double LoadOf(const Axis& axis, const std::vector<Coordinates>& groups) {
  double most = 0;
  for (int64_t link = 0; link + 1 < axis.size; ++link) {
    double load = 0;
    for (const Coordinates& group : groups) {
      if (GoesAround(axis, group)) {  // either way half of what the others give
        load += static_cast<double>(group.size() - 1) / 2;
      } else if (group.back() > link) {  // upwards; downwards it is the same from the other end
        load += static_cast<double>(IndexIn(group, link + 1));
      }
    }
    most = std::max(most, load);
  }
  return most;
}

int64_t HopsOf(const Axis& axis, const Coordinates& group) {
  return GoesAround(axis, group) ? axis.size / 2 : group.back() - group.front();
}

// By the other coordinates of a line of chips: of each group with ranks there, where they sit on
// it.
using Lines = std::map<Coordinates, std::map<size_t, Coordinates>>;

Line LineOf(const Axis& axis, int64_t size, Lines lines) {
  Line line;
  line.size = size;
  for (auto& [_, of_groups] : lines) {
    std::vector<Coordinates> along;
    for (auto& [_, group] : of_groups) {
      std::sort(group.begin(), group.end());
      along.push_back(group);
      line.hops = std::max(line.hops, HopsOf(axis, group));
    }
    line.load = std::max(line.load, LoadOf(axis, along));
  }
  return line;
}

// Of an all_gather in parts of such shares, of which the first begins with the first axis. A
// reduce_scatter goes the same way back.
double LoadOfParts(const std::vector<Line>& lines, const std::vector<double>& shares) {
  const size_t count = lines.size();
  std::vector<double> loads(count);
  for (size_t part = 0; part < shares.size(); ++part) {
    double block = shares[part];
    for (size_t i = 0; i < count; ++i) {
      const size_t line = (part + i) % count;
      loads[line] += lines[line].load * block;
      block *= static_cast<double>(lines[line].size);
    }
  }
  return *std::max_element(loads.begin(), loads.end());
}

}  // namespace

double Boxes::Load() const {
  if (lines.size() < 2) return lines.empty() ? 0 : lines[0].load;
  // By trying all: there are two or three axes.
  constexpr int kSteps = 24;
  double least = LoadOfParts(lines, {1});
  for (int a = 0; a <= kSteps; ++a) {
    for (int b = lines.size() == 2 ? kSteps - a : 0; b <= kSteps - a; ++b) {
      const auto share = [](int steps) { return static_cast<double>(steps) / kSteps; };
      std::vector<double> shares = {share(a), share(b)};
      if (lines.size() > 2) shares.push_back(share(kSteps - a - b));
      least = std::min(least, LoadOfParts(lines, shares));
    }
  }
  return least;
}

int64_t Boxes::Hops() const {
  int64_t hops = 0;
  for (const Line& line : lines) hops += line.hops;
  return hops;
}

std::optional<Boxes> BoxesOf(const Groups& groups, const Topology& topology, int64_t world_size) {
  if (!topology.known() || topology.Chips() != world_size || !groups.Uniform() ||
      !groups.Covers(world_size)) {
    return std::nullopt;
  }
  std::vector<Lines> lines(topology.axes.size());
  Coordinates sizes;
  const std::vector<std::vector<int64_t>> list = groups.Expanded(world_size);
  for (size_t number = 0; number < list.size(); ++number) {
    const Box box(list[number], topology);
    if (!box.IsFull() || (number > 0 && box.Sizes() != sizes)) return std::nullopt;
    sizes = box.Sizes();
    for (const Coordinates& member : box.members) {
      for (size_t axis = 0; axis < lines.size(); ++axis) {
        Coordinates others = member;
        others.erase(others.begin() + static_cast<int64_t>(axis));
        lines[axis][others][number].push_back(member[axis]);
      }
    }
  }
  Boxes boxes;
  for (size_t axis = 0; axis < lines.size(); ++axis) {
    if (sizes[axis] == 1) continue;
    boxes.lines.push_back(LineOf(topology.axes[axis], sizes[axis], std::move(lines[axis])));
  }
  return boxes;
}

std::optional<Neighbours> NeighboursOf(const Groups& world, const Topology& topology,
                                       int64_t world_size) {
  if (world_size % 2 != 0 || world_size < 4) return std::nullopt;
  const std::vector<int64_t> ranks = world.Expanded(world_size)[0];
  std::vector<std::vector<int64_t>> pairs;
  std::vector<std::vector<int64_t>> others(2);
  for (size_t i = 0; i + 1 < ranks.size(); i += 2) {
    pairs.push_back({ranks[i], ranks[i + 1]});
    others[0].push_back(ranks[i]);
    others[1].push_back(ranks[i + 1]);
  }
  Neighbours neighbours{Groups(std::move(pairs)), Groups(std::move(others))};
  for (Groups* groups : {&neighbours.pairs, &neighbours.others}) {
    if (!groups->Resolve("neighbours", world_size).ok() ||
        !AreEvenBoxes(*groups, topology, world_size)) {
      return std::nullopt;
    }
  }
  return neighbours;
}

bool AreEvenBoxes(const Groups& groups, const Topology& topology, int64_t world_size) {
  if (!BoxesOf(groups, topology, world_size)) return false;
  std::optional<Coordinates> steps;
  for (const std::vector<int64_t>& group : groups.Expanded(world_size)) {
    const std::optional<Coordinates> own = Box(group, topology).Steps();
    if (!own || (steps && *own != *steps)) return false;
    steps = own;
  }
  return true;
}

}  // namespace xla_cc
