// What a rank sends to itself, which no connection carries: the parcels of a tag, in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "torch_xla_cc/groupcall/group_call.h"

namespace xla_cc {

template <class Parcel>
class Mail {
 public:
  void Put(int tag, Parcel parcel) {
    const std::lock_guard lock(mutex_);
    parcels_.emplace(std::make_pair(tag, put_[tag]++), std::move(parcel));
    changed_.notify_all();
  }

  // The number of the parcel that a receive made now will get.
  uint64_t Ask(int tag) {
    const std::lock_guard lock(mutex_);
    return asked_[tag]++;
  }

  // Throws if it has not come in time.
  Parcel Take(int tag, uint64_t number, Timeout timeout) {
    std::unique_lock lock(mutex_);
    const auto key = std::make_pair(tag, number);
    if (!changed_.wait_for(lock, timeout, [&] { return parcels_.count(key) > 0; })) {
      throw std::runtime_error("Timed out waiting for what this rank sends to itself");
    }
    return std::move(parcels_.extract(key).mapped());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, uint64_t> put_;
  std::map<int, uint64_t> asked_;
  std::map<std::pair<int, uint64_t>, Parcel> parcels_;
};

}  // namespace xla_cc
