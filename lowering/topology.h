// How the chips of a TPU are linked, and what vendors publish about that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace xla_cc {

struct Axis {
  int64_t size = 1;    // chips
  bool wraps = false;  // the last is linked to the first
  bool operator==(const Axis& other) const { return size == other.size && wraps == other.wraps; }
};

// A torus, or a mesh where axes do not wrap. Nothing in it: the device is another one, or unknown.
struct Topology {
  std::vector<Axis> axes;  // x, y, ...
  // By rank: its chip, of which those along x are counted first. None: rank r is on chip r.
  std::vector<int64_t> chips;

  bool known() const { return !axes.empty(); }
  int64_t Chips() const;
  std::vector<int64_t> CoordinatesOf(int64_t rank) const;
  bool operator==(const Topology& other) const {
    return axes == other.axes && chips == other.chips;
  }
};

// Published figures of a generation.
struct Links {
  const char* device;
  double link_bytes_per_us;  // of one link, one way
  double hbm_bytes_per_us;
  int64_t wraps_at;  // an axis wraps if its size is a multiple of that; of a cube, if all are
};

// Null for devices of which none are known.
const Links* LinksOf(const std::string& device);

// The chips of such a device in so many along each axis.
Topology TopologyOf(const std::string& device, const std::vector<int64_t>& dims,
                    std::vector<int64_t> chips = {});

}  // namespace xla_cc
