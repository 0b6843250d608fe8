#include "lowering/model/tiles.h"

namespace xla_cc {

std::vector<int64_t> Squeezed(const std::vector<int64_t>& dims, int64_t* dim) {
  std::vector<int64_t> squeezed;
  const int64_t old = *dim;
  for (int64_t i = 0; i < static_cast<int64_t>(dims.size()); ++i) {
    if (i == old) *dim = static_cast<int64_t>(squeezed.size());
    if (i == old || dims[i] != 1) squeezed.push_back(dims[i]);
  }
  return squeezed;
}

// If that is more than the elements by one of `most` at most.
bool Block::Takes(int64_t minor_size, int64_t column_size, int64_t most) {
  const int64_t filled = RoundUp(minor_size, column_size);
  const int64_t count = RoundUp(elements / minor_size * filled / column_size, kTileRows);
  if ((count * column_size - elements) * most > elements) return false;
  rows = count;
  columns = column_size;
  major = elements / minor_size;
  minor = minor_size;
  whole = filled;
  return true;
}

Block::Block(const std::vector<int64_t>& part) {
  int64_t last = 1;
  for (const int64_t size : part) {
    elements *= size;
    if (size != 1) last = size;
  }
  constexpr int64_t kOfRows = 20;
  constexpr int64_t kOfLanes = 32;
  if (last < elements) {
    if (FillsLanes(last) && Takes(last, last, kOfRows)) return;
    if (Takes(last, kTileLanes, kOfLanes)) return;
    turned = Takes(elements / last, kTileLanes, kOfLanes);
    if (turned) return;
  }
  Takes(elements, kTileLanes, 0);  // whatever it is
}

}  // namespace xla_cc
