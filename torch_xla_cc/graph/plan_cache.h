// Lowered collectives, kept: the same call lowers once per process.
#pragma once

#include <Python.h>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "lowering/lower.h"

namespace xla_cc {

// A lowered collective and what attaching it takes. Immutable but for the Python objects, which the
// interpreter lock guards.
struct Plan {
  // What ranks on threads hold on to: it may be let go by whoever has a lock of ours, and so must
  // own nothing of Python.
  const std::shared_ptr<const Lowered> shared;
  const Lowered& lowered;
  const Target target;
  mutable PyObject* computation = nullptr;  // _XLAC.XlaComputation, made on first use
  mutable PyObject* op_name = nullptr;      // "xla_cc::all_gather"

  Plan(Lowered lowered, Target target)
      : shared(std::make_shared<const Lowered>(std::move(lowered))),
        lowered(*shared),
        target(std::move(target)) {}
  Plan(const Plan&) = delete;
  ~Plan();
};
using PlanPtr = std::shared_ptr<const Plan>;

// What a plan is found by: every field of the node, the operands and the target, as numbers.
class Key {
 public:
  void operator()(const char*, int64_t value) { numbers_.push_back(value); }
  void operator()(const char*, const std::optional<int64_t>& value);
  void operator()(const char*, double value);
  void operator()(const char*, ReduceKind value) {
    numbers_.push_back(static_cast<int64_t>(value));
  }
  void operator()(const char*, const Groups& value);
  void operator()(const char*, const Pairs& value);
  void operator()(const char*, const Sizes& value);
  void operator()(const char*, const SizeMatrix& value);
  void Add(const hlo::Shape& shape);
  void Add(const std::string& text);
  bool operator==(const Key& other) const { return numbers_ == other.numbers_; }
  size_t Hash() const;

 private:
  std::vector<int64_t> numbers_;
};

// A bounded map, least recently used out first. Threads may call it at once.
class PlanCache {
 public:
  static PlanCache& Get();

  // Null if absent.
  PlanPtr Find(const Key& key);
  // Keeps the first of two plans that were made at once; and none that was begun at another
  // `age`, before all were dropped.
  PlanPtr Insert(Key key, PlanPtr plan, int64_t age);
  int64_t age();
  void SetCapacity(size_t capacity);
  void Clear();

  struct Counts {
    int64_t hits = 0;
    int64_t misses = 0;
    int64_t size = 0;
    int64_t capacity = 0;
  };
  Counts counts();

 private:
  struct Hasher {
    size_t operator()(const Key& key) const { return key.Hash(); }
  };
  using Order = std::list<const Key*>;
  struct Entry {
    PlanPtr plan;
    Order::iterator place;
  };
  // Takes the oldest out; the caller lets them go after unlocking, since that may take the
  // interpreter lock.
  std::vector<PlanPtr> Trim();

  std::mutex mutex_;
  size_t capacity_ = 4096;
  int64_t age_ = 0;  // how often all were dropped
  int64_t hits_ = 0;
  int64_t misses_ = 0;
  std::unordered_map<Key, Entry, Hasher> plans_;
  Order order_;  // most recent first
};

}  // namespace xla_cc
