#include "torch_xla_cc/graph/plan_cache.h"

#include <cstring>

namespace xla_cc {

Plan::~Plan() {
  if ((computation == nullptr && op_name == nullptr) || !Py_IsInitialized()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_XDECREF(computation);
  Py_XDECREF(op_name);
  PyGILState_Release(state);
}

void Key::operator()(const char*, const std::optional<int64_t>& value) {
  numbers_.push_back(value.has_value());
  if (value) numbers_.push_back(*value);
}

void Key::operator()(const char*, double value) {
  int64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  numbers_.push_back(bits);
}

void Key::operator()(const char*, const Groups& value) {
  numbers_.push_back(static_cast<int64_t>(value.list().size()));
  for (const auto& group : value.list()) {
    numbers_.push_back(static_cast<int64_t>(group.size()));
    numbers_.insert(numbers_.end(), group.begin(), group.end());
  }
}

void Key::operator()(const char*, const Pairs& value) {
  numbers_.push_back(static_cast<int64_t>(value.size()));
  for (const auto& [source, target] : value) {
    numbers_.push_back(source);
    numbers_.push_back(target);
  }
}

void Key::operator()(const char*, const Sizes& value) {
  numbers_.push_back(static_cast<int64_t>(value.size()));
  numbers_.insert(numbers_.end(), value.begin(), value.end());
}

void Key::operator()(const char* name, const SizeMatrix& value) {
  numbers_.push_back(static_cast<int64_t>(value.size()));
  for (const Sizes& row : value) (*this)(name, row);
}

void Key::Add(const hlo::Shape& shape) {
  numbers_.push_back(static_cast<int64_t>(shape.type));
  numbers_.push_back(shape.rank());
  numbers_.insert(numbers_.end(), shape.dims.begin(), shape.dims.end());
}

void Key::Add(const std::string& text) {
  numbers_.push_back(static_cast<int64_t>(text.size()));
  for (char c : text) numbers_.push_back(c);
}

size_t Key::Hash() const {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (int64_t number : numbers_) {
    hash = (hash ^ static_cast<uint64_t>(number)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

PlanCache& PlanCache::Get() {
  // Never destroyed: plans hold Python objects, which must not be let go after the interpreter.
  static auto* cache = new PlanCache;
  return *cache;
}

PlanPtr PlanCache::Find(const Key& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = plans_.find(key);
  if (found == plans_.end()) {
    ++misses_;
    return nullptr;
  }
  ++hits_;
  order_.splice(order_.begin(), order_, found->second.place);
  return found->second.plan;
}

int64_t PlanCache::age() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return age_;
}

PlanPtr PlanCache::Insert(Key key, PlanPtr plan, int64_t age) {
  std::vector<PlanPtr> dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (age != age_) return plan;
  const auto [at, inserted] = plans_.try_emplace(std::move(key));
  if (!inserted) return at->second.plan;
  order_.push_front(&at->first);
  at->second = {plan, order_.begin()};
  dropped = Trim();
  return plan;
}

std::vector<PlanPtr> PlanCache::Trim() {
  std::vector<PlanPtr> dropped;
  while (plans_.size() > capacity_) {
    const auto oldest = plans_.find(*order_.back());
    dropped.push_back(std::move(oldest->second.plan));
    order_.pop_back();
    plans_.erase(oldest);
  }
  return dropped;
}

void PlanCache::SetCapacity(size_t capacity) {
  std::vector<PlanPtr> dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  capacity_ = capacity;
  dropped = Trim();
}

void PlanCache::Clear() {
  std::unordered_map<Key, Entry, Hasher> dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  dropped.swap(plans_);
  order_.clear();
  ++age_;
}

PlanCache::Counts PlanCache::counts() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {hits_, misses_, static_cast<int64_t>(plans_.size()), static_cast<int64_t>(capacity_)};
}

}  // namespace xla_cc
