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

}  // namespace xla_cc
