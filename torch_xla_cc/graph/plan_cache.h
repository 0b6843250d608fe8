// Lowered collectives, kept: the same call lowers once per process.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lowering/lower.h"
#include "torch_xla_cc/aged_cache.h"

namespace xla_cc {

// A lowered collective and what attaching it takes. Immutable but for the Python objects, which the
// interpreter lock guards.
struct Plan {
  // What ranks on threads hold on to: it may be let go by whoever has a lock of ours, and so must
  // own nothing of Python.
  const std::shared_ptr<const Lowered> shared;
  const Lowered& lowered;
  const Target target;
  const std::string in;                     // a group, by which programs differ: see PlanningIn
  mutable PyObject* computation = nullptr;  // _XLAC.XlaComputation, made on first use
  mutable PyObject* op_name = nullptr;      // "xla_cc::all_gather"

  Plan(Lowered lowered, Target target, std::string in = "")
      : shared(std::make_shared<const Lowered>(std::move(lowered))),
        lowered(*shared),
        target(std::move(target)),
        in(std::move(in)) {}
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

class PlanCache : public AgedCache<Key, Plan> {
 public:
  static PlanCache& Get();
};

}  // namespace xla_cc
