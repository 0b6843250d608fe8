// Rows of numbers, one a rank, all of one length. Those that are equal are kept once: where all
// members of a group, or of the world, have one row, nothing here grows with members times ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace xla_cc {

using Row = std::vector<int64_t>;

class RankRows {
 public:
  // All ranks have this one, but for those that are given another, once each.
  RankRows(int64_t world_size, Row row);
  void Give(const std::vector<int64_t>& ranks, Row row);
  void Give(int64_t rank, Row row) { Give(std::vector<int64_t>{rank}, std::move(row)); }

  int64_t world_size() const { return static_cast<int64_t>(numbers_.size()); }
  size_t length() const { return rows_[0].size(); }
  const Row& operator[](int64_t rank) const { return rows_[numbers_[rank]]; }
  bool AllSame() const { return different() == 1; }

  // The rows that ranks have, each once, and for each rank the number of its row among them.
  size_t different() const { return rows_.size() - First(); }
  const Row& Different(size_t number) const { return rows_[First() + number]; }
  std::vector<int64_t> Numbers() const;

  // With `change(row)` for each row.
  template <class Change>
  RankRows Changed(const Change& change) const {
    RankRows changed(world_size(), change(Different(0)));
    std::vector<size_t> numbers{0};
    for (size_t i = 1; i < different(); ++i) numbers.push_back(changed.Find(change(Different(i))));
    const std::vector<int64_t> before = Numbers();
    for (size_t rank = 0; rank < before.size(); ++rank) changed.Move(rank, numbers[before[rank]]);
    return changed;
  }

 private:
  size_t First() const { return with_first_ > 0 ? 0 : 1; }  // the first that a rank has
  size_t Find(Row row);                                     // adds it if it is not there
  void Move(int64_t rank, size_t number);

  std::vector<Row> rows_;
  std::unordered_multimap<size_t, size_t> known_;  // by hash: their numbers
  std::vector<size_t> numbers_;                    // by rank
  int64_t with_first_;                             // how many ranks have the first
};

}  // namespace xla_cc
