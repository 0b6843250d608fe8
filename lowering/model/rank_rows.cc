#include "lowering/model/rank_rows.h"

#include <utility>

namespace xla_cc {
namespace {

size_t HashOf(const Row& row) {
  size_t hash = row.size();
  for (int64_t number : row) {
    hash ^= static_cast<size_t>(number) + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  }
  return hash;
}

}  // namespace

RankRows::RankRows(int64_t world_size, Row row) : numbers_(world_size, 0), with_first_(world_size) {
  Find(std::move(row));
}

size_t RankRows::Find(Row row) {
  const size_t hash = HashOf(row);
  const auto [begin, end] = known_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (rows_[it->second] == row) return it->second;
  }
  known_.emplace(hash, rows_.size());
  rows_.push_back(std::move(row));
  return rows_.size() - 1;
}

void RankRows::Move(int64_t rank, size_t number) {
  if (numbers_[rank] == 0) --with_first_;
  if (number == 0) ++with_first_;
  numbers_[rank] = number;
}

void RankRows::Give(const std::vector<int64_t>& ranks, Row row) {
  const size_t number = Find(std::move(row));
  for (int64_t rank : ranks) Move(rank, number);
}

std::vector<int64_t> RankRows::Numbers() const {
  std::vector<int64_t> numbers;
  numbers.reserve(numbers_.size());
  for (size_t number : numbers_) numbers.push_back(static_cast<int64_t>(number - First()));
  return numbers;
}

}  // namespace xla_cc
