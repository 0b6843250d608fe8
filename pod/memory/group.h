// The collectives of a group of ranks, as one of them calls them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "pod/memory/reduction.h"
#include "pod/memory/region.h"
#include "pod/memory/windows.h"

namespace xla_cc::pod::memory {

// All members call the same, in the same order; of what threads call at a time, one waits for the
// other. What is given may be where the result is to be.
class Group {
 public:
  // `place` is this rank's.
  Group(Region& region, Windows& windows, const Ranks& ranks, int place);

  const Ranks& ranks() const { return ranks_; }
  int place() const { return place_; }
  int number() const { return number_; }  // the same on all members
  int size() const { return static_cast<int>(ranks_.size()); }

  // `bytes` of each.
  void AllGather(const std::byte* given, std::byte* result, size_t bytes);
  void AllReduce(const std::byte* given, std::byte* result, size_t count, Type type,
                 Reduction reduction);
  // `count` is that of the result.
  void ReduceScatter(const std::byte* given, std::byte* result, size_t count, Type type,
                     Reduction reduction);

 private:
  enum class Kind : uint32_t { kAllGather, kAllReduce, kReduceScatter, kSlices };

  // One part of a call at a time: what goes through a window. `step(begin, count)` of elements, of
  // which there are `most` at most.
  void InParts(size_t count, size_t most, const std::function<void(size_t, size_t)>& step);
  // This rank's window, which is empty.
  std::byte* Open();
  // Waits for all, and returns their windows. Throws if they are in something else; `bytes` are
  // those of the whole call.
  std::vector<const std::byte*> Meet(Kind kind, Type type, Reduction reduction, size_t bytes);
  // This rank has read the windows of the others.
  void Finish();
  void ReduceSlices(std::vector<const std::byte*> windows, std::byte* result, size_t count,
                    Type type, Reduction reduction);
  void Compare(const Call& own, const Call& others, int rank) const;

  Region& region_;
  Windows& windows_;
  const Ranks ranks_;
  const int place_;
  const int number_;
  GroupState& state_;
  std::mutex in_use_;
  uint64_t meetings_ = 0;
  uint64_t parts_ = 0;
  uint32_t window_ = 0;
};

}  // namespace xla_cc::pod::memory
