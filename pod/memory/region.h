// The memory that the device processes of one machine share.
//
// All of it is zero at first, and valid so. What no call touches takes no memory: most of it is
// windows and rings, through which bytes go from rank to rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "pod/memory/waiting.h"

namespace xla_cc::pod::memory {

using Ranks = std::vector<int>;

constexpr int kMostRanks = 64;
constexpr int kMostGroups = 2048;
constexpr int kWindows = 8;  // of a rank: for calls at a time, and for what slow peers still read
constexpr size_t kWindowBytes = size_t{2} << 20;

// What goes wrong is said in words: XLA fails the program with them.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a member of a group is in; all have to be in the same.
struct Call {
  uint32_t kind;
  uint32_t type;
  uint32_t reduction;
  uint32_t window;  // where its bytes are; this may differ
  uint64_t bytes;
};

struct alignas(64) Member {
  Call calls[2];                   // of the last two meetings: a slow peer may still read the first
  std::atomic<uint64_t> finished;  // so many windows of the others' it has read
};

constexpr uint32_t kNobodys = 0, kClaimed = ~uint32_t{0};

struct alignas(64) GroupState {
  std::atomic<uint32_t> size;  // or one of the two below
  uint16_t ranks[kMostRanks];
  Bell bell;
  alignas(64) std::atomic<uint64_t> arrived;  // of all members, at all meetings so far
  Member members[kMostRanks];
};

// Bytes from one rank to another, in their order.
struct alignas(64) RingState {
  std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
};

// They are in memory of several processes, which may have been built at other times.
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(Call) == 24 && sizeof(Member) == 64 && sizeof(RingState) == 128);

class Region {
 public:
  // Of a world of this size.
  static size_t Bytes(int size);

  // `start` of so many, which all have, and which were zero before any of them. Throws.
  Region(std::byte* start, int rank, int size);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // The place of that of these ranks, in this order.
  int PlaceOf(const Ranks& ranks);
  GroupState& Group(int place);
  Bell& BellOf(int rank);
  std::byte* Window(int rank, uint32_t window);
  RingState& RingHead(int from, int to);
  std::byte* RingBytes(int from, int to);
  size_t ring_bytes() const { return ring_bytes_; }

  // All waiting in this process ends, some moments later, by a Failure that says so, and so does
  // what comes after it. The first reason counts.
  void End(const std::string& why);
  const std::atomic<bool>& ended() const { return ended_; }
  const std::string& why() const { return why_; }  // once it has ended
  [[noreturn]] void FailEnded() const;

 private:
  struct Head;

  std::byte* At(size_t offset) { return start_ + offset; }

  const int rank_;
  const int size_;
  const size_t ring_bytes_;
  std::byte* const start_;
  std::mutex ending_;
  std::string why_;  // written before `ended_`, once
  std::atomic<bool> ended_{false};
};

}  // namespace xla_cc::pod::memory
