#include "lowering/model/groups.h"

#include <algorithm>

#include "lowering/errors.h"
#include "lowering/hlo/shape.h"

namespace xla_cc {

using hlo::WireMessage;

Status Groups::Resolve(const std::string& op, int64_t world_size) {
  if (list_.empty()) return Status::Ok();
  const std::string world = "0 to " + std::to_string(world_size - 1);
  std::vector<bool> seen(world_size, false);
  for (const auto& group : list_) {
    for (int64_t rank : group) {
      if (rank < 0 || rank >= world_size) {
        return Refuse(
            {"G1", op, "groups", ToString(),
             "lists of ranks of the world, " + world + ", and " + std::to_string(rank) + " is none",
             "Name ranks of this world of " + std::to_string(world_size)});
      }
      if (seen[rank]) {
        return Refuse({"G1", op, "groups", ToString(),
                       "disjoint, and rank " + std::to_string(rank) + " is named twice",
                       "Name no rank twice"});
      }
      seen[rank] = true;
    }
    if (group.empty()) {
      return Refuse({"G1", op, "groups", ToString(), "lists of at least one rank",
                     "Leave the empty group out"});
    }
  }
  std::sort(list_.begin(), list_.end());  // by their first ranks: the order of groups means nothing
  if (list_.size() == 1 && Covers(world_size) && Ascending()) list_.clear();
  return Status::Ok();
}

bool Groups::Uniform() const {
  for (const auto& group : list_) {
    if (group.size() != list_[0].size()) return false;
  }
  return true;
}

bool Groups::Covers(int64_t world_size) const {
  int64_t members = 0;
  for (const auto& group : list_) members += static_cast<int64_t>(group.size());
  return list_.empty() || members == world_size;
}

bool Groups::Ascending() const {
  return std::all_of(list_.begin(), list_.end(),
                     [](const auto& group) { return std::is_sorted(group.begin(), group.end()); });
}

int64_t Groups::Size(int64_t world_size) const {
  if (list_.empty()) return world_size;
  size_t longest = 0;
  for (const auto& group : list_) longest = std::max(longest, group.size());
  return static_cast<int64_t>(longest);
}

Groups Groups::Sorted() const {
  std::vector<std::vector<int64_t>> sorted = list_;
  for (auto& group : sorted) std::sort(group.begin(), group.end());
  std::sort(sorted.begin(), sorted.end());
  return Groups(std::move(sorted));
}

Groups Groups::WithSingles(int64_t world_size) const {
  if (list_.empty()) return *this;
  std::vector<std::vector<int64_t>> all = list_;
  const std::vector<int64_t> sizes = Sizes(world_size);
  for (int64_t rank = 0; rank < world_size; ++rank) {
    if (sizes[rank] == 0) all.push_back({rank});
  }
  return Groups(std::move(all));
}

std::optional<Groups> Groups::Completed(int64_t world_size) const {
  if (!Uniform()) return std::nullopt;
  const size_t size = static_cast<size_t>(Size(world_size));
  std::vector<std::vector<int64_t>> all = list_;
  const std::vector<int64_t> sizes = Sizes(world_size);
  bool open = false;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    if (sizes[rank] != 0) continue;
    if (!open) all.emplace_back();
    all.back().push_back(rank);
    open = all.back().size() < size;
  }
  if (open) return std::nullopt;
  std::sort(all.begin(), all.end());
  return Groups(std::move(all));
}

std::optional<Groups> Groups::AlongAxis(const std::vector<int64_t>& group, int64_t world_size) {
  const int64_t size = static_cast<int64_t>(group.size());
  if (size < 2) return std::nullopt;
  const int64_t stride = group[1] - group[0];
  for (int64_t i = 0; i < size; ++i) {
    if (group[i] != group[0] + i * stride) return std::nullopt;
  }
  const int64_t span = stride * size;
  if (stride < 1 || world_size % span != 0 || group[0] % span >= stride) return std::nullopt;
  std::vector<std::vector<int64_t>> all;
  for (int64_t first = 0; first < world_size; ++first) {
    if (first % span >= stride) continue;
    all.emplace_back();
    for (int64_t i = 0; i < size; ++i) all.back().push_back(first + i * stride);
  }
  return Groups(std::move(all));
}

std::vector<std::vector<int64_t>> Groups::Expanded(int64_t world_size) const {
  if (!list_.empty()) return list_;
  std::vector<int64_t> world(world_size);
  for (int64_t rank = 0; rank < world_size; ++rank) world[rank] = rank;
  return {world};
}

std::vector<int64_t> Groups::Of(int64_t rank, int64_t world_size) const {
  for (auto& group : Expanded(world_size)) {
    if (std::find(group.begin(), group.end(), rank) != group.end()) return group;
  }
  return {rank};
}

std::vector<int64_t> Groups::Positions(int64_t world_size) const {
  std::vector<int64_t> positions(world_size, 0);
  for (const auto& group : Expanded(world_size)) {
    for (size_t i = 0; i < group.size(); ++i) positions[group[i]] = static_cast<int64_t>(i);
  }
  return positions;
}

std::vector<int64_t> Groups::Sizes(int64_t world_size) const {
  std::vector<int64_t> sizes(world_size, 0);
  for (const auto& group : Expanded(world_size)) {
    for (int64_t rank : group) sizes[rank] = static_cast<int64_t>(group.size());
  }
  return sizes;
}

std::vector<int64_t> Groups::Numbers(int64_t world_size) const {
  std::vector<int64_t> numbers(world_size, 0);
  for (size_t number = 0; number < list_.size(); ++number) {
    for (int64_t rank : list_[number]) numbers[rank] = static_cast<int64_t>(number);
  }
  return numbers;
}

std::optional<IotaGroups> Groups::Iota(int64_t world_size) const {
  if (list_.empty()) return IotaGroups{1, world_size, {world_size}, {0}};
  if (!Uniform() || !Covers(world_size)) return std::nullopt;
  const int64_t groups = static_cast<int64_t>(list_.size());
  const int64_t size = Size(world_size);
  bool blocks = true;
  bool strided = true;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < size; ++i) {
      blocks = blocks && list_[g][i] == g * size + i;
      strided = strided && list_[g][i] == g + i * groups;
    }
  }
  if (blocks) return IotaGroups{groups, size, {groups * size}, {0}};
  if (strided) return IotaGroups{groups, size, {size, groups}, {1, 0}};
  return std::nullopt;
}

WireMessage Groups::ToProto(int64_t world_size, bool listed) const {
  if (const auto iota = listed ? std::nullopt : Iota(world_size)) {
    WireMessage list;
    list.Int(1, iota->groups).Int(2, iota->size).Packed(3, iota->dims).Packed(4, iota->perm);
    return WireMessage().Sub(2, list);
  }
  WireMessage proto;
  for (const auto& group : Expanded(world_size)) proto.Sub(1, WireMessage().Packed(1, group));
  return proto;
}

std::string Groups::ToHloText(int64_t world_size) const {
  if (const auto iota = Iota(world_size)) {
    std::string text = "[" + std::to_string(iota->groups) + "," + std::to_string(iota->size) +
                       "]<=[" + hlo::ToString(iota->dims) + "]";
    return iota->perm.size() > 1 ? text + "T(" + hlo::ToString(iota->perm) + ")" : text;
  }
  std::string text;
  for (const auto& group : list_) text += (text.empty() ? "{" : ",{") + hlo::ToString(group) + "}";
  return "{" + text + "}";
}

std::string Groups::ToString() const {
  if (list_.empty()) return "world";
  constexpr size_t kShown = 100;
  std::string text;
  for (const auto& group : list_) {
    text += (text.empty() ? "[" : ",[") + hlo::ToString(group) + "]";
  }
  if (text.size() <= kShown) return "[" + text + "]";
  // A long list is told in the compact form, or cut: this is for people, and part of every module.
  const int64_t members = static_cast<int64_t>(list_.size()) * Size(0);
  return Uniform() && Iota(members) ? ToHloText(members) : "[" + text.substr(0, kShown) + "...]";
}

}  // namespace xla_cc
