// Memory that a rank shares with its device process: memfd segments, kept for reuse.
//
// They have no name, so nobody else can open them, and are sealed: neither side can make the other
// fault by changing their size. Their pages are reserved when they are made, so that memory that is
// not there is an error and not a fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace xla_cc::pod {

struct Segment {
  int64_t id = 0;
  size_t size = 0;
  char* data = nullptr;
  int descriptor = -1;  // until the device process has it
  bool is_new = false;  // the device process has not heard of it
};

class SegmentPool {
 public:
  explicit SegmentPool(size_t keep_bytes) : keep_bytes_(keep_bytes) {}
  ~SegmentPool();  // the device process has ended
  SegmentPool(const SegmentPool&) = delete;
  SegmentPool& operator=(const SegmentPool&) = delete;

  // At least so large. Throws if the memory is not there.
  Segment Take(size_t bytes);
  // It may be taken again.
  void Return(int64_t id);
  // Those that are too many, unmapped here: the device process is to be told.
  std::vector<int64_t> Drop();

 private:
  const size_t keep_bytes_;
  std::mutex mutex_;
  int64_t last_id_ = 0;
  std::map<int64_t, Segment> used_;
  std::multimap<size_t, Segment> free_;  // by size
  size_t free_bytes_ = 0;
};

}  // namespace xla_cc::pod
