// How the ranks of a call stand to each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lowering/model/groups.h"
#include "lowering/model/pairs.h"
#include "lowering/target.h"

namespace xla_cc {

// FORM(enumerator, name). The first five are those of groups, the last two those of pairs.
#define XLA_CC_FORMS(FORM)                                                                     \
  FORM(kWorld, "world")         /* everybody, in rank order */                                 \
  FORM(kEqual, "equal")         /* of consecutive ranks or of every n-th, in rank order */     \
  FORM(kUnequal, "unequal")     /* groups of several sizes, and every rank in one */           \
  FORM(kPartial, "partial")     /* ranks in none; if of several sizes, both forms are asked */ \
  FORM(kScrambled, "scrambled") /* all others of one size that hold everybody */               \
  FORM(kChain, "chain")         /* pairs, and nothing comes back to a rank that sent */        \
  FORM(kRing, "ring")           /* pairs, and something does */

enum class Form : int {
#define FORM(enumerator, name) enumerator,
  XLA_CC_FORMS(FORM)
#undef FORM
};
std::string Name(Form form);
std::optional<Form> FormFromName(const std::string& name);
Form FormOf(const Groups& groups, int64_t world_size);
// On a torus the boxes of chips are equal groups too, as compilers see them: [0,1,8,9] of 8x8.
Form FormOf(const Groups& groups, const Target& target);
Form FormOf(const Pairs& pairs);

}  // namespace xla_cc
