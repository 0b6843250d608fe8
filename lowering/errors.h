// The one form of our messages: op, argument, value, what is required, remedy.
#pragma once

#include <string>

#include "lowering/status.h"

namespace xla_cc {

struct Refusal {
  std::string label;     // of the constraint in docs/spec.md: "O3"
  std::string op;        // all_gather
  std::string argument;  // dim
  std::string value;     // 5
  std::string required;  // "an axis of operand 0, f32[4,8]: -2 to 1"
  std::string remedy;    // "pass one of them"
};

inline Status Refuse(const Refusal& r) {
  return Status::Error(r.op + ": " + r.argument + " = " + r.value + ", but it must be " +
                       r.required + " (" + r.label + "). " + r.remedy + ".");
}

}  // namespace xla_cc
