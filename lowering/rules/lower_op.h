// One op of a module by the rule that the target wants: the instruction, or a fallback. What
// fallbacks themselves are built of goes through here as well.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lowering/capability/capability.h"
#include "lowering/rules/emitter.h"
#include "lowering/rules/trial.h"
#include "lowering/rules/ways.h"

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

// By the way of T's table that is right here; nothing if none is.
template <class T>
std::optional<hlo::Value> LowerByWays(const T& op, Emitter& e, const hlo::Value& x) {
  const Ways<T>& ways = T::Fallback();
  const auto take = [&](const Way<T>& way) {
    e.NoteWay(std::string(T::kName) + " " + way.name);
    return way.rewrite(op, e, x);
  };
  for (const Way<T>& way : ways.first) {
    if (way.fits(op, e, x)) return take(way);
  }
  std::vector<Way<T>> fitting;
  std::vector<Trial> trials;
  for (const Way<T>& way : ways.cheapest) {
    if (!way.fits(op, e, x)) continue;
    fitting.push_back(way);
    trials.push_back(
        [&op, way](Emitter& trial, const hlo::Value& y) { way.rewrite(op, trial, y); });
  }
  if (fitting.empty()) return std::nullopt;
  return take(fitting[Cheapest(e, x, trials)]);
}

// Fallbacks that lead back to themselves, as the entries of an application may make them.
constexpr int kDeepest = 8;

// What was refused is emitted all the same: the shapes hold, and the module is dropped.
template <class T>
hlo::Values LowerAllTheSame(const T& op, Emitter& e, const hlo::Values& xs,
                            const std::string& why) {
  e.Refuse(why);
  return op.LowerNative(e, xs);
}

template <class T>
hlo::Values LowerBatch(const T& op, Emitter& e, const hlo::Values& xs, Rule rule,
                       const std::string& why) {
  if (rule == Rule::kNative) return op.LowerNative(e, xs);
  if (rule == Rule::kFallback && e.depth() < kDeepest) {
    e.Enter();
    const std::optional<hlo::Value> result = LowerByWays(op, e, xs[0]);  // it takes no lists
    e.Leave();
    if (result) return {*result};
  }
  return LowerAllTheSame(op, e, xs, why);
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

template <class T>
hlo::Value LowerOne(const T& op, Emitter& e, const hlo::Value& x) {
  return Lower(op, e, {x})[0];
}

// For a way that leaves the rest to the other ways of a simpler op of its kind.
template <class T>
hlo::Value Continue(const T& op, Emitter& e, const hlo::Value& x) {
  if (const std::optional<hlo::Value> result = LowerByWays(op, e, x)) return *result;
  return LowerAllTheSame(op, e, {x}, ChooseFor(op, e.target(), x.shape.type).why)[0];
}

}  // namespace xla_cc
