#include "lowering/topology.h"

#include <algorithm>
#include <utility>

namespace xla_cc {
namespace {

// cloud.google.com/tpu/docs, "System architecture": bits a second of all links of a chip, divided
// by its links (6 or 4); which slices are tori; HBM bandwidth.
constexpr Links kLinks[] = {
    {"tpu:v4", 50e3, 1228e3, 4},
    {"tpu:v5p", 100e3, 2765e3, 4},
    {"tpu:v5e", 50e3, 819e3, 16},
    {"tpu:v6e", 112e3, 1640e3, 16},
};

}  // namespace

const Links* LinksOf(const std::string& device) {
  for (const Links& links : kLinks) {
    if (device == links.device) return &links;
  }
  return nullptr;
}

Topology TopologyOf(const std::string& device, const std::vector<int64_t>& dims,
                    std::vector<int64_t> chips) {
  const Links* links = LinksOf(device);
  if (links == nullptr) return {};
  Topology topology;
  const auto wraps = [&](int64_t size) { return size % links->wraps_at == 0; };
  const bool whole = dims.size() < 3 || std::all_of(dims.begin(), dims.end(), wraps);
  for (const int64_t size : dims) topology.axes.push_back({size, whole && wraps(size)});
  topology.chips = std::move(chips);
  return topology;
}

int64_t Topology::Chips() const {
  int64_t chips = 1;
  for (const Axis& axis : axes) chips *= axis.size;
  return chips;
}

std::vector<int64_t> Topology::CoordinatesOf(int64_t rank) const {
  int64_t chip = chips.empty() ? rank : chips[rank];
  std::vector<int64_t> coordinates;
  for (const Axis& axis : axes) {
    coordinates.push_back(chip % axis.size);
    chip /= axis.size;
  }
  return coordinates;
}

}  // namespace xla_cc
