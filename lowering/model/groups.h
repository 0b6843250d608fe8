// Replica-group arithmetic, once.
//
// Groups say which ranks take part together: [[0, 1], [2, 3]]. None stands for one group of the
// whole world in rank order. The order inside a group is the order of its members' data. A group
// that is shorter than the longest counts as filled up with absent members; a rank may be in none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lowering/hlo/wire.h"
#include "lowering/status.h"

namespace xla_cc {

// The compact form of XLA: ids = reshape(transpose(reshape(0..n-1, dims), perm), [groups, size]).
struct IotaGroups {
  int64_t groups = 1;
  int64_t size = 1;
  std::vector<int64_t> dims;
  std::vector<int64_t> perm;
};

class Groups {
 public:
  Groups() = default;  // the world
  explicit Groups(std::vector<std::vector<int64_t>> list) : list_(std::move(list)) {}

  bool IsWorld() const { return list_.empty(); }
  const std::vector<std::vector<int64_t>>& list() const { return list_; }

  // (G1) every rank of the world in at most one group, ids in range. The groups are sorted, and a
  // list that says the world in rank order becomes the world: equal calls have equal keys.
  Status Resolve(const std::string& op, int64_t world_size);

  bool Uniform() const;                   // all of one size
  bool Covers(int64_t world_size) const;  // every rank is in one
  bool Ascending() const;                 // each in rank order
  // Members of the longest group.
  int64_t Size(int64_t world_size) const;
  // The same groups, each in rank order.
  Groups Sorted() const;
  // With a group of its own for each rank that is in none.
  Groups WithSingles(int64_t world_size) const;
  // With the ranks that are in none in groups of the same size; if their number allows it.
  std::optional<Groups> Completed(int64_t world_size) const;
  // All groups along the axis of a mesh of which `group` is one, the ranks numbered row by row:
  // with [1,5] of 8 come [0,4], [2,6] and [3,7]. Each of them gives the same. None for other
  // groups.
  static std::optional<Groups> AlongAxis(const std::vector<int64_t>& group, int64_t world_size);
  // The list form, with the world spelled out.
  std::vector<std::vector<int64_t>> Expanded(int64_t world_size) const;
  // The group of a rank, in group order; the rank alone if it is in none.
  std::vector<int64_t> Of(int64_t rank, int64_t world_size) const;
  // By rank: its position in its group; the size of its group, 0 if it is in none; the number of
  // its group. Those in none have position and number 0.
  std::vector<int64_t> Positions(int64_t world_size) const;
  std::vector<int64_t> Sizes(int64_t world_size) const;
  std::vector<int64_t> Numbers(int64_t world_size) const;
  // The compact form, for groups that are [i*s .. i*s+s-1] or [i, i+n, i+2n, ..].
  std::optional<IotaGroups> Iota(int64_t world_size) const;

  // CollectiveDeviceListProto; in the compact form if there is one, unless `listed`.
  hlo::WireMessage ToProto(int64_t world_size, bool listed = false) const;
  std::string ToHloText(int64_t world_size) const;
  std::string ToString() const;  // world, or [[0,1],[2,3]]
  bool operator==(const Groups& other) const { return list_ == other.list_; }

 private:
  std::vector<std::vector<int64_t>> list_;
};

}  // namespace xla_cc
