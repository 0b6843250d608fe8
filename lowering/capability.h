// What each device's compiler accepts: data, not ifs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lowering/collective.h"

namespace xla_cc {

// What becomes of a call: the instruction, others in the same graph, nothing, or (what no table
// says) a copy through the host outside of the graph.
enum class Rule { kNative, kFallback, kRefused, kHost };

// FORM(enumerator, name): how the ranks of a call stand to each other. The first five are those of
// groups, the last two those of pairs.
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
Form FormOf(const Pairs& pairs);

// What is asked: one op on one element type.
struct Query {
  Op op;
  const Target& target;
  hlo::ElementType type;
  std::optional<ReduceKind> reduce;  // what the instruction computes; none for data movement
  Form form = Form::kWorld;
  int64_t group_size = 0;  // of the longest group; 0 for pairs
};

// Whether an op has a form with several operands that means the same as one instruction each.
bool HasListForm(Op op);

struct Choice {
  Rule rule = Rule::kNative;
  // Whether one instruction may take several operands; else there is one instruction each.
  bool lists = true;
  std::string why;        // for all but native
  std::string why_alone;  // of an op that has a form with several operands, which is not taken
};

// What applications have registered, the last first; else what was measured (the generated
// capability_table.inc, which holds only what is not native); else native, as for unknown kinds.
// A target that does not name a known generation of its kind gets only what all of them take.
Choice Choose(const Query& query);

// An entry of an application. Empty sets stand for all.
struct Registration {
  std::string device;  // "tpu:v5e", or a kind, "neuron", for all its generations
  Op op;
  std::vector<hlo::ElementType> types;
  std::vector<ReduceKind> kinds;
  std::vector<Form> forms;
  bool native = false;
  std::string why;
};
// Returns a handle. Any thread may call these.
int64_t Register(const Registration& registration);
bool Unregister(int64_t handle);

std::string Name(Rule rule);

}  // namespace xla_cc
