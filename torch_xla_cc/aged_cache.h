// A bounded map of what is shared, least recently used out first. Threads may call it at once, also
// such as hold the interpreter lock: nothing is let go under the lock of this, since who lets go
// may have to take that one.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace xla_cc {

// `Key` has == and Hash().
template <class Key, class T>
class AgedCache {
 public:
  using Value = std::shared_ptr<const T>;

  // Null if absent.
  Value Find(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end()) {
      ++misses_;
      return nullptr;
    }
    ++hits_;
    order_.splice(order_.begin(), order_, found->second.place);
    return found->second.value;
  }

  // Keeps the first of two values that were made at once; and none that was begun at another
  // `age`, before all were dropped.
  Value Insert(Key key, Value value, int64_t age) {
    std::vector<Value> dropped;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (age != age_) return value;
    const auto [at, inserted] = values_.try_emplace(std::move(key));
    if (!inserted) return at->second.value;
    order_.push_front(&at->first);
    at->second = {value, order_.begin()};
    dropped = Trim();
    return value;
  }

  int64_t age() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return age_;
  }

  void SetCapacity(size_t capacity) {
    std::vector<Value> dropped;
    const std::lock_guard<std::mutex> lock(mutex_);
    capacity_ = capacity;
    dropped = Trim();
  }

  void Clear() {
    std::unordered_map<Key, Entry, Hasher> dropped;
    const std::lock_guard<std::mutex> lock(mutex_);
    dropped.swap(values_);
    order_.clear();
    ++age_;
  }

  struct Counts {
    int64_t hits = 0;
    int64_t misses = 0;
    int64_t size = 0;
    int64_t capacity = 0;
  };
  Counts counts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {hits_, misses_, static_cast<int64_t>(values_.size()), static_cast<int64_t>(capacity_)};
  }

 private:
  struct Hasher {
    size_t operator()(const Key& key) const { return key.Hash(); }
  };
  using Order = std::list<const Key*>;
  struct Entry {
    Value value;
    typename Order::iterator place;
  };

  // Takes the oldest out; the caller lets them go after unlocking.
  std::vector<Value> Trim() {
    std::vector<Value> dropped;
    while (values_.size() > capacity_) {
      const auto oldest = values_.find(*order_.back());
      dropped.push_back(std::move(oldest->second.value));
      order_.pop_back();
      values_.erase(oldest);
    }
    return dropped;
  }

  std::mutex mutex_;
  size_t capacity_ = 4096;
  int64_t age_ = 0;  // how often all were dropped
  int64_t hits_ = 0;
  int64_t misses_ = 0;
  std::unordered_map<Key, Entry, Hasher> values_;
  Order order_;  // most recent first
};

}  // namespace xla_cc
