// Ways to make a collective of others. Each op has a table of them, its fallback; LowerByWays
// (lower_op.h) walks it.
#pragma once

#include <vector>

#include "lowering/rules/emitter.h"

namespace xla_cc {

template <class T>
struct Way {
  const char* name;  // for people, behind the op's: all_gather "of its bits"
  bool (*fits)(const T& op, const Emitter& e, const hlo::Value& x);
  hlo::Value (*rewrite)(const T& op, Emitter& e, const hlo::Value& x);
};

template <class T>
struct Ways {
  std::vector<Way<T>> first;     // the first that fits is taken
  std::vector<Way<T>> cheapest;  // else, of those that fit, the one that costs least
};

template <class T>
bool Always(const T&, const Emitter&, const hlo::Value&) {
  return true;
}

// A way that takes a step for each member of a group is for groups of so many.
constexpr int64_t kMostSteps = 64;

}  // namespace xla_cc
