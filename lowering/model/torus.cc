#include "lowering/model/torus.h"

#include <algorithm>
#include <map>
#include <numeric>
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
  std::vector<int64_t> Places() const {
    std::vector<int64_t> places;
    for (const Coordinates& member : members) {
      int64_t place = 0;
      for (size_t axis = sides.size(); axis-- > 0;) {
        place =
            place * static_cast<int64_t>(sides[axis].size()) + IndexIn(sides[axis], member[axis]);
      }
      places.push_back(place);
    }
    return places;
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

// The ranks of each group that are on one line along an axis, by their coordinates there.
using Line = std::map<int64_t, int64_t>;
// By the other coordinates of a line of chips: one Line for each group that has ranks there.
using Lines = std::map<Coordinates, std::map<size_t, Line>>;

Stage StageOf(size_t number, const Axis& axis, int64_t size, const Lines& lines) {
  Stage stage;
  stage.axis = static_cast<int64_t>(number);
  stage.size = size;
  std::vector<std::vector<int64_t>> list;
  for (const auto& [_, of_groups] : lines) {
    std::vector<Coordinates> along;
    for (const auto& [group, line] : of_groups) {
      list.emplace_back();
      along.emplace_back();
      for (const auto& [coordinate, rank] : line) {
        list.back().push_back(rank);
        along.back().push_back(coordinate);
      }
      stage.hops = std::max(stage.hops, HopsOf(axis, along.back()));
    }
    stage.load = std::max(stage.load, LoadOf(axis, along));
  }
  stage.groups = Groups(std::move(list));
  return stage;
}

}  // namespace

bool Boxes::InOrder() const {
  for (const std::vector<int64_t>& row : places) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i] != static_cast<int64_t>(i)) return false;
    }
  }
  return true;
}

int64_t Boxes::Members() const {
  int64_t members = 1;
  for (const Stage& stage : stages) members *= stage.size;
  return members;
}

double Boxes::Load(const std::vector<int64_t>& shares, bool scatters) const {
  const size_t count = stages.size();
  std::vector<double> loads(count);
  const auto units = static_cast<double>(std::accumulate(shares.begin(), shares.end(), int64_t{0}));
  for (size_t part = 0; part < shares.size(); ++part) {
    double block = static_cast<double>(shares[part]) / units;
    for (size_t i = 0; i < count; ++i) {
      // An all_gather has more to give at each stage, a reduce_scatter had more at each before.
      const size_t stage = (part + (scatters ? count - 1 - i : i)) % count;
      loads[stage] += stages[stage].load * block;
      block *= static_cast<double>(stages[stage].size);
    }
  }
  return *std::max_element(loads.begin(), loads.end());
}

int64_t Boxes::Hops() const {
  int64_t hops = 0;
  for (const Stage& stage : stages) hops += stage.hops;
  return hops;
}

std::vector<int64_t> Boxes::Shares(int64_t units, bool in_parts, bool scatters) const {
  if (!in_parts || stages.size() == 1) return {units};
  // By trying all: there are two or three axes. Finer than this makes no difference.
  constexpr int64_t kMost = 96;
  const int64_t all = std::min(units, kMost);
  std::vector<int64_t> best;
  for (int64_t a = 0; a <= all; ++a) {
    for (int64_t b = stages.size() == 2 ? all - a : 0; b <= all - a; ++b) {
      std::vector<int64_t> shares = {a, b};
      if (stages.size() == 3) shares.push_back(all - a - b);
      if (best.empty() || Load(shares, scatters) < Load(best, scatters)) best = shares;
    }
  }
  int64_t sum = 0;
  int64_t begin = 0;
  for (int64_t& share : best) {
    sum += share;
    const int64_t end = units * sum / all;
    share = end - begin;
    begin = end;
  }
  return best;
}

std::optional<Boxes> BoxesOf(const Groups& groups, const Topology& topology, int64_t world_size) {
  if (!topology.known() || topology.Chips() != world_size || !groups.Uniform() ||
      !groups.Covers(world_size)) {
    return std::nullopt;
  }
  Boxes boxes;
  std::vector<Lines> lines(topology.axes.size());
  Coordinates sizes;
  const std::vector<std::vector<int64_t>> list = groups.Expanded(world_size);
  for (size_t number = 0; number < list.size(); ++number) {
    const std::vector<int64_t>& group = list[number];
    const Box box(group, topology);
    if (!box.IsFull() || (number > 0 && box.Sizes() != sizes)) return std::nullopt;
    sizes = box.Sizes();
    boxes.places.push_back(box.Places());
    for (size_t i = 0; i < group.size(); ++i) {
      for (size_t axis = 0; axis < lines.size(); ++axis) {
        Coordinates others = box.members[i];
        others.erase(others.begin() + static_cast<int64_t>(axis));
        lines[axis][others][number][box.members[i][axis]] = group[i];
      }
    }
  }
  for (size_t axis = 0; axis < lines.size(); ++axis) {
    if (sizes[axis] == 1) continue;
    Stage stage = StageOf(axis, topology.axes[axis], sizes[axis], lines[axis]);
    if (!stage.groups.Resolve("stage", world_size).ok()) return std::nullopt;
    boxes.stages.push_back(std::move(stage));
  }
  return boxes;
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
