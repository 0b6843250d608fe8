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

Block::Block(const std::vector<int64_t>& part, int64_t row_multiple) {
  int64_t last = 1;
  for (const int64_t size : part) {
    elements *= size;
    if (size != 1) last = size;
  }
  rows = RoundUp(elements, row_multiple * columns) / columns;
  constexpr int64_t kTwentieth = 20;
  const int64_t own_rows = RoundUp(elements / last, row_multiple);
  const int64_t more = own_rows * last - elements;
  if (last < elements && FillsLanes(last) && more * kTwentieth <= elements) {
    rows = own_rows;
    columns = last;
  }
}

}  // namespace xla_cc
