// What each device's compiler accepts: data, not ifs.
#pragma once

#include <optional>
#include <string>

#include "lowering/collective.h"

namespace xla_cc {

enum class Rule { kNative, kFallback, kRefused };

// What is asked: one op on one element type.
struct Query {
  Op op;
  DeviceKind kind;
  hlo::ElementType type;
  std::optional<ReduceKind> reduce;  // what the instruction computes; none for data movement
  bool uniform_groups = true;
  bool cyclic_pairs = false;  // data comes back to a rank that sent some
};

struct Choice {
  Rule rule = Rule::kNative;
  // Whether one instruction may take several operands; else there is one instruction each.
  bool lists = true;
  std::string why;  // for all but native
};

// The first row of the table that matches; native where none does (unknown kinds included).
Choice Choose(const Query& query);

std::string Name(Rule rule);

}  // namespace xla_cc
