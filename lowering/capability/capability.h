// What each device's compiler accepts: data, not ifs.
#pragma once

#include <string>

#include "lowering/capability/query.h"
#include "lowering/capability/registry.h"

namespace xla_cc {

// What becomes of a call: the instruction, others in the same graph, nothing, or (what no table
// says) a copy through the host outside of the graph.
enum class Rule { kNative, kFallback, kRefused, kHost };

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
// measured.inc, which holds only what is not native); else native, as for unknown kinds.
// A target that does not name a known generation of its kind gets only what all of them take.
Choice Choose(const Query& query);

// Of a call. Groups of several sizes that leave ranks out were not measured: they are taken where
// either form alone is.
template <class Node>
Choice ChooseFor(const Node& node, const Target& target, hlo::ElementType type) {
  Query query = QueryFor(node, target, type);
  const Choice choice = Choose(query);
  if (query.form != Form::kPartial || !query.several_sizes) return choice;
  if (choice.rule != Rule::kNative) return choice;
  query.form = Form::kUnequal;
  return Choose(query);
}

std::string Name(Rule rule);

}  // namespace xla_cc
