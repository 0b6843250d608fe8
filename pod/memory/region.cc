#include "pod/memory/region.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace xla_cc::pod::memory {
namespace {

constexpr size_t kRingsBytes = size_t{64} << 20;  // of all pairs, about
constexpr size_t kShortestRing = size_t{16} << 10;
constexpr size_t kLongestRing = size_t{1} << 20;

// A power of two.
size_t RingBytesOf(int size) {
  size_t bytes = kLongestRing;
  while (bytes > kShortestRing && bytes * size * size > kRingsBytes) bytes /= 2;
  return bytes;
}

}  // namespace

struct Region::Head {
  Bell bells[kMostRanks];
  GroupState groups[kMostGroups];
};

namespace {

size_t Rounded(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

size_t Region::Bytes(int size) {
  const size_t ring = sizeof(RingState) + RingBytesOf(size);
  return Rounded(sizeof(Head)) + size * kWindows * kWindowBytes + size * size * ring;
}

Region::Region(std::byte* start, int rank, int size)
    : rank_(rank), size_(size), ring_bytes_(RingBytesOf(size)), start_(start) {
  if (size < 1 || size > kMostRanks || rank < 0 || rank >= size) {
    throw Failure("rank " + std::to_string(rank) + " of " + std::to_string(size) + ": at most " +
                  std::to_string(kMostRanks) + " ranks meet in memory");
  }
}

int Region::PlaceOf(const Ranks& ranks) {
  for (int place = 0; place < kMostGroups; ++place) {
    GroupState& group = Group(place);
    uint32_t found = kNobodys;
    if (group.size.compare_exchange_strong(found, kClaimed)) {
      std::copy(ranks.begin(), ranks.end(), group.ranks);
      group.size = static_cast<uint32_t>(ranks.size());
      return place;
    }
    while (group.size == kClaimed) {  // for an instant; or its process was killed in it
      if (ended_) FailEnded();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (group.size == ranks.size() && std::equal(ranks.begin(), ranks.end(), group.ranks)) {
      return place;
    }
  }
  throw Failure("the ranks have met in " + std::to_string(kMostGroups) +
                " groups, and more is not implemented: use gloo");
}

GroupState& Region::Group(int place) { return reinterpret_cast<Head*>(start_)->groups[place]; }

Bell& Region::BellOf(int rank) { return reinterpret_cast<Head*>(start_)->bells[rank]; }

std::byte* Region::Window(int rank, uint32_t window) {
  return At(Rounded(sizeof(Head)) + (rank * kWindows + window) * kWindowBytes);
}

RingState& Region::RingHead(int from, int to) {
  const size_t each = sizeof(RingState) + ring_bytes_;
  const size_t first = Rounded(sizeof(Head)) + size_ * kWindows * kWindowBytes;
  return *reinterpret_cast<RingState*>(At(first + (from * size_ + to) * each));
}

std::byte* Region::RingBytes(int from, int to) {
  return reinterpret_cast<std::byte*>(&RingHead(from, to)) + sizeof(RingState);
}

void Region::End(const std::string& why) {
  const std::lock_guard<std::mutex> lock(ending_);
  if (ended_) return;
  why_ = why;
  ended_ = true;
}

void Region::FailEnded() const { throw Failure(why_); }

}  // namespace xla_cc::pod::memory
