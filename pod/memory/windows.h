// The windows of this rank: one is used again when all have read what was in it.
#pragma once

#include <cstdint>
#include <mutex>

#include "pod/memory/region.h"

namespace xla_cc::pod::memory {

class Windows {
 public:
  explicit Windows(Region& region) : region_(region) {}

  // A free one, for the `number`th part of what this group does. From any thread.
  uint32_t Take(const GroupState& group, uint64_t number);

 private:
  struct Use {
    const GroupState* group = nullptr;
    uint64_t number = 0;
  };

  Region& region_;
  std::mutex lock_;
  Use uses_[kWindows];
};

}  // namespace xla_cc::pod::memory
