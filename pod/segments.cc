#include "pod/segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "pod/failure.h"

namespace xla_cc::pod {
namespace {

constexpr size_t kSmallest = size_t{1} << 17;
constexpr size_t kPage = 4096;

// Sizes that are used again for others: eight between a power of two and the next.
size_t Rounded(size_t bytes) {
  size_t power = kSmallest;
  while (power * 2 <= bytes) power *= 2;
  const size_t step = std::max(power / 8, kPage);
  return std::max(kSmallest, (bytes + step - 1) / step * step);
}

[[noreturn]] void Refuse(size_t bytes, const char* step) {
  throw Failure(abi::Code::kResourceExhausted,
                "the pod device needs " + std::to_string(bytes) +
                    " bytes of shared memory for a tensor, and " + step + " failed: " +
                    std::strerror(errno) + ". Free memory, or give the container more of it");
}

size_t NumberIn(const char* path, const std::string& word) {
  std::ifstream file(path);
  std::string found;
  size_t number = 0;
  while (file >> found) {
    if (word.empty()) return std::strtoull(found.c_str(), nullptr, 10);
    if (found == word && file >> number) return number;
  }
  return 0;
}

// What can be reserved without the kernel ending processes, this one or others: memfd has no limit
// of its own.
size_t Available() {
  size_t available = NumberIn("/proc/meminfo", "MemAvailable:") * 1024;
  const size_t limit =
      NumberIn("/sys/fs/cgroup/memory.max", "");  // of a container; "max" reads as 0
  if (limit != 0) {
    const size_t used = NumberIn("/sys/fs/cgroup/memory.current", "");
    const size_t cached = NumberIn("/sys/fs/cgroup/memory.stat", "inactive_file");
    available = std::min(available, limit - std::min(limit, used - std::min(used, cached)));
  }
  return available;
}

Segment Make(size_t bytes) {
  if (bytes > Available()) {
    errno = ENOMEM;
    Refuse(bytes, "reserving them");
  }
  Segment segment;
  segment.size = bytes;
  segment.is_new = true;
  segment.descriptor = memfd_create("torch_xla_cc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (segment.descriptor < 0) Refuse(bytes, "memfd_create");
  const auto give_up = [&](const char* step) {
    const int error = errno;
    close(segment.descriptor);
    errno = error;
    Refuse(bytes, step);
  };
  if (const int error = posix_fallocate(segment.descriptor, 0, static_cast<off_t>(bytes))) {
    errno = error;
    give_up("fallocate");
  }
  if (fcntl(segment.descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    give_up("sealing it");
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                    segment.descriptor, 0);
  if (data == MAP_FAILED) give_up("mmap");
  segment.data = static_cast<char*>(data);
  return segment;
}

void Unmake(const Segment& segment) {
  munmap(segment.data, segment.size);
  if (segment.descriptor >= 0) close(segment.descriptor);
}

}  // namespace

SegmentPool::~SegmentPool() {
  for (const auto& [id, segment] : used_) Unmake(segment);
  for (const auto& [size, segment] : free_) Unmake(segment);
}

Segment SegmentPool::Take(size_t bytes) {
  const size_t wanted = Rounded(bytes);
  {
    const std::lock_guard lock(mutex_);
    const auto found = free_.lower_bound(wanted);
    if (found != free_.end() && found->first <= 2 * wanted) {
      const Segment segment = found->second;
      free_bytes_ -= segment.size;
      free_.erase(found);
      used_[segment.id] = segment;
      return segment;
    }
  }
  Segment made = Make(wanted);
  const std::lock_guard lock(mutex_);
  made.id = ++last_id_;
  Segment& kept = used_[made.id] = made;
  kept.is_new = false;
  kept.descriptor = -1;  // who took it sends and closes it
  return made;
}

void SegmentPool::Return(int64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(id);
  if (found == used_.end()) return;
  free_bytes_ += found->second.size;
  free_.emplace(found->second.size, found->second);
  used_.erase(found);
}

std::vector<int64_t> SegmentPool::Drop() {
  std::vector<int64_t> dropped;
  const std::lock_guard lock(mutex_);
  while (free_bytes_ > keep_bytes_) {
    const auto largest = std::prev(free_.end());
    free_bytes_ -= largest->first;
    dropped.push_back(largest->second.id);
    Unmake(largest->second);
    free_.erase(largest);
  }
  return dropped;
}

}  // namespace xla_cc::pod
