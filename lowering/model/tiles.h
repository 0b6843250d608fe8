// How a TPU keeps arrays: the last two dimensions in tiles of rows and lanes, of which the last
// ones are filled up.
#pragma once

#include <cstdint>
#include <vector>

namespace xla_cc {

constexpr int64_t kTileRows = 8;
constexpr int64_t kTileLanes = 128;

inline int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Whether rows of so many elements fill tiles well enough: a quarter more goes over the wire at
// most.
inline bool FillsLanes(int64_t columns) {
  return 4 * (RoundUp(columns, kTileLanes) - columns) <= columns;
}

// Without dimensions of one element, of which compilers make nothing; `dim` stays, and becomes its
// place among those that are left.
std::vector<int64_t> Squeezed(const std::vector<int64_t>& dims, int64_t* dim);

// Whether so few that tiles would take more than four times the memory. Compilers lay arrays of
// such rows out the other way round, and to turn them takes up to 32 times their memory.
inline bool IsNarrow(int64_t columns) { return 4 * columns < kTileLanes; }

// One rank's part of an array as [rows, columns], whole tiles: columns are its last dimension where
// that fills tiles, and one tile's lanes otherwise.
struct Block {
  int64_t rows = 0;
  int64_t columns = kTileLanes;
  int64_t elements = 1;  // of the part; the rest is padding
  // The part as a matrix, of which each row is filled up to whole columns, that makes the rows. Of
  // what is cut otherwise compilers make a program for minutes.
  int64_t major = 1;
  int64_t minor = 1;
  int64_t whole = 1;
  bool turned = false;  // the matrix is of the last dimension and the others, not the other way

  explicit Block(const std::vector<int64_t>& part);
  int64_t Padded() const { return rows * columns; }
  int64_t OwnRows() const { return major * whole / columns; }

 private:
  // Whether that many rows of the matrix, filled up so, are not too much more.
  bool Takes(int64_t minor_size, int64_t column_size, int64_t most);
};

}  // namespace xla_cc
