#include "lowering/model/sizes.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lowering/errors.h"
#include "lowering/hash.h"

namespace xla_cc {
namespace {

constexpr size_t kShown = 100;

// What is cut still tells two values apart: ranks compare these texts.
std::string Cut(const std::string& text) {
  if (text.size() <= kShown) return text;
  return text.substr(0, kShown) + "...#" + std::to_string(Hash(text));
}

constexpr char kEvery[] = "Say how many rows of dimension 0 each rank has, 0 for none";

// Tables of rows are of 32 bits.
template <class Given>
Status RequireFewRows(const std::string& op, const Given& given, int64_t members) {
  if (Largest(given) <= INT32_MAX / members) return Status::Ok();
  return Refuse({"V1", op, "sizes", ToString(given),
                 "at most 2147483647 rows, when every rank of a group has as many as the largest",
                 "Make fewer and longer rows of the tensor"});
}

// `given` holds these sizes; as text it is long, and made for who is refused alone.
template <class Given>
Status RequireNotNegative(const std::string& op, const Given& given, const Sizes& sizes,
                          const std::string& name) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] >= 0) continue;
    return Refuse({"V1", op, "sizes", ToString(given),
                   "numbers of rows, 0 or more, and " + name + "[" + std::to_string(i) + "] is " +
                       std::to_string(sizes[i]),
                   kEvery});
  }
  return Status::Ok();
}

}  // namespace

std::string ToString(const Sizes& sizes) { return Cut("[" + hlo::ToString(sizes) + "]"); }

std::string ToString(const SizeMatrix& sizes) {
  std::string text;
  for (const Sizes& row : sizes) text += (text.empty() ? "[" : ",[") + hlo::ToString(row) + "]";
  return Cut("[" + text + "]");
}

Status ResolveSizes(const std::string& op, int64_t world_size, const Sizes& sizes, Groups* groups) {
  XLA_CC_RETURN_IF_ERROR(groups->Resolve(op, world_size));
  if (static_cast<int64_t>(sizes.size()) != world_size) {
    return Refuse({"V1", op, "sizes", ToString(sizes),
                   "one size for each rank of the world, " + std::to_string(world_size) +
                       ", and there are " + std::to_string(sizes.size()),
                   kEvery});
  }
  XLA_CC_RETURN_IF_ERROR(RequireNotNegative(op, sizes, sizes, "sizes"));
  XLA_CC_RETURN_IF_ERROR(RequireFewRows(op, sizes, groups->Size(world_size)));
  const std::vector<int64_t> members = groups->Sizes(world_size);
  for (int64_t rank = 0; rank < world_size; ++rank) {
    if (members[rank] > 0 || sizes[rank] == 0) continue;
    return Refuse({"V3", op, "sizes", ToString(sizes),
                   "0 for rank " + std::to_string(rank) + ", which groups leave out",
                   "Put the rank in a group, or say 0"});
  }
  return Status::Ok();
}

Status ResolveSizes(const std::string& op, int64_t world_size, const SizeMatrix& sizes,
                    Groups* groups) {
  XLA_CC_RETURN_IF_ERROR(groups->Resolve(op, world_size));
  bool square = static_cast<int64_t>(sizes.size()) == world_size;
  for (const Sizes& row : sizes) {
    square = square && static_cast<int64_t>(row.size()) == world_size;
  }
  if (!square) {
    const std::string world = std::to_string(world_size);
    return Refuse({"V1", op, "sizes", ToString(sizes),
                   "a list for each rank of the world of what it sends to each: " + world +
                       " lists of " + world,
                   "Say in sizes[i][j] how many rows rank i sends to rank j, 0 for none"});
  }
  for (int64_t rank = 0; rank < world_size; ++rank) {
    XLA_CC_RETURN_IF_ERROR(
        RequireNotNegative(op, sizes, sizes[rank], "sizes[" + std::to_string(rank) + "]"));
  }
  XLA_CC_RETURN_IF_ERROR(RequireFewRows(op, sizes, groups->Size(world_size)));
  const std::vector<int64_t> numbers = groups->Numbers(world_size);
  const std::vector<int64_t> members = groups->Sizes(world_size);
  for (int64_t i = 0; i < world_size; ++i) {
    for (int64_t j = 0; j < world_size; ++j) {
      const bool together = members[i] > 0 && members[j] > 0 && numbers[i] == numbers[j];
      if (together || sizes[i][j] == 0) continue;
      return Refuse({"V3", op, "sizes", ToString(sizes),
                     "0 from rank " + std::to_string(i) + " to rank " + std::to_string(j) +
                         ", whom groups do not put together",
                     "Put the two in one group, or say 0"});
    }
  }
  return Status::Ok();
}

Status RequireRows(const std::string& op, const Call& call, int64_t rows, const std::string& what) {
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const hlo::Shape& shape = call.operands[i];
    if (shape.rank() > 0 && shape.dims[0] == rows) continue;
    return Refuse({"V2", op, "operand " + std::to_string(i), shape.ToString(),
                   "of " + std::to_string(rows) + " rows in dimension 0, " + what,
                   "Fill it up with rows of any value, or say other sizes"});
  }
  return Status::Ok();
}

RankRows InGroups(const Sizes& sizes, const Groups& groups, int64_t world_size) {
  const Row nothing(groups.Size(world_size), 0);
  RankRows rows(world_size, nothing);
  for (const auto& group : groups.Expanded(world_size)) {
    Row row = nothing;
    for (size_t i = 0; i < group.size(); ++i) row[i] = sizes[group[i]];
    rows.Give(group, std::move(row));
  }
  return rows;
}

namespace {

// `size(rank, other)` for the members of each rank's group.
template <class Size>
RankRows BetweenMembers(const Groups& groups, int64_t world_size, const Size& size) {
  const Row nothing(groups.Size(world_size), 0);
  RankRows rows(world_size, nothing);
  for (const auto& group : groups.Expanded(world_size)) {
    for (int64_t rank : group) {
      Row row = nothing;
      for (size_t i = 0; i < group.size(); ++i) row[i] = size(rank, group[i]);
      rows.Give(rank, std::move(row));
    }
  }
  return rows;
}

}  // namespace

RankRows SentInGroups(const SizeMatrix& sizes, const Groups& groups, int64_t world_size) {
  return BetweenMembers(groups, world_size,
                        [&](int64_t rank, int64_t to) { return sizes[rank][to]; });
}

RankRows ReceivedInGroups(const SizeMatrix& sizes, const Groups& groups, int64_t world_size) {
  return BetweenMembers(groups, world_size,
                        [&](int64_t rank, int64_t from) { return sizes[from][rank]; });
}

RankRows Starts(const RankRows& sizes) {
  return sizes.Changed([](Row row) {
    int64_t sum = 0;
    for (int64_t& size : row) sum += std::exchange(size, sum);
    return row;
  });
}

Sizes Sums(const RankRows& sizes) {
  Sizes of_rows;
  for (size_t i = 0; i < sizes.different(); ++i) {
    const Row& row = sizes.Different(i);
    of_rows.push_back(std::accumulate(row.begin(), row.end(), int64_t{0}));
  }
  Sizes sums;
  for (int64_t number : sizes.Numbers()) sums.push_back(of_rows[number]);
  return sums;
}

Sizes Sums(const SizeMatrix& sizes) {
  Sizes sums;
  for (const Sizes& row : sizes) {
    sums.push_back(std::accumulate(row.begin(), row.end(), int64_t{0}));
  }
  return sums;
}

int64_t Largest(const Sizes& sizes) {
  int64_t largest = 0;
  for (int64_t size : sizes) largest = std::max(largest, size);
  return largest;
}

int64_t Largest(const SizeMatrix& sizes) {
  int64_t largest = 0;
  for (const Sizes& row : sizes) largest = std::max(largest, Largest(row));
  return largest;
}

}  // namespace xla_cc
