// One op of a module by the rule that the target wants: the instruction, or a fallback. What
// fallbacks themselves are built of goes through here as well.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lowering/capability/capability.h"
#include "lowering/rules/emitter.h"

namespace xla_cc {

// Whether the target's compiler takes the instruction of `op` for that type.
template <class T>
bool Takes(const T& op, const Emitter& e, hlo::ElementType type) {
  return ChooseFor(op, e.target(), type).rule == Rule::kNative;
}

// Operands that one instruction may take together: a list of one type where the compiler takes
// lists, else each alone. In order of first appearance, so that every rank builds the same.
template <class T>
std::vector<std::vector<size_t>> Batches(const T& op, const Target& target, const hlo::Values& xs,
                                         std::optional<Rule> forced) {
  std::vector<std::vector<size_t>> batches;
  std::map<hlo::ElementType, size_t> open;
  for (size_t i = 0; i < xs.size(); ++i) {
    const hlo::ElementType type = xs[i].shape.type;
    const auto found = open.find(type);
    if (found != open.end()) {
      batches[found->second].push_back(i);
      continue;
    }
    const bool lists = forced ? *forced == Rule::kNative && HasListForm(OpOf<T>::value)
                              : ChooseFor(op, target, type).lists;
    if (lists) open[type] = batches.size();
    batches.push_back({i});
  }
  return batches;
}

// Fallbacks that lead back to themselves, as the entries of an application may make them.
constexpr int kDeepest = 8;

template <class T>
hlo::Values LowerBatch(const T& op, Emitter& e, const hlo::Values& xs, Rule rule,
                       const std::string& why) {
  if (rule == Rule::kFallback && e.depth() < kDeepest) {
    e.Enter();
    const hlo::Values results = op.LowerFallback(e, xs);
    e.Leave();
    if (!results.empty()) return results;
  }
  // What was refused is emitted all the same: the shapes hold, and the module is dropped.
  if (rule != Rule::kNative) e.Refuse(why);
  return op.LowerNative(e, xs);
}

// `forced`: a rule to be taken whatever the table says.
template <class T>
hlo::Values Lower(const T& op, Emitter& e, const hlo::Values& xs,
                  std::optional<Rule> forced = std::nullopt) {
  hlo::Values results(xs.size());
  for (const std::vector<size_t>& batch : Batches(op, e.target(), xs, forced)) {
    hlo::Values operands;
    for (size_t i : batch) operands.push_back(xs[i]);
    const Choice choice = ChooseFor(op, e.target(), operands[0].shape.type);
    const hlo::Values lowered =
        LowerBatch(op, e, operands, forced.value_or(choice.rule), choice.why);
    for (size_t i = 0; i < batch.size(); ++i) results[batch[i]] = lowered[i];
  }
  return results;
}

}  // namespace xla_cc
