#include "lowering/lower.h"

#include <algorithm>

#include "lowering/errors.h"
#include "lowering/hash.h"
#include "lowering/rules/bits.h"
#include "lowering/rules/lower_op.h"

namespace xla_cc {

using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

namespace {

std::string Hex(uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) out[i] = kDigits[value & 15];
  return out;
}

// The rule of the whole call: fallback if any operand needs it.
template <class T>
void ChooseForCall(const T& node, const Call& call, std::optional<Rule> forced, Lowered* lowered) {
  for (size_t i : lowered->live) {
    const Choice choice = ChooseFor(node, call.target, call.operands[i].type);
    if (choice.rule == Rule::kNative) {
      // Said as well: several operands that do not travel together.
      const bool alone = lowered->live.size() > 1 && !choice.why_alone.empty();
      if (alone && lowered->rule == Rule::kNative) {
        lowered->why = "one instruction for each operand: " + choice.why_alone;
      }
      continue;
    }
    lowered->rule = Rule::kFallback;
    lowered->why = choice.why;
  }
  if (!forced) return;
  lowered->rule = *forced;
  lowered->why = *forced == Rule::kFallback ? "it was asked for" : "";
}

// (C1), said of the first operand that is not native: the rule that is missing may be that of an op
// which its fallback is built of.
template <class T>
Status Refused(const T& node, const Call& call, const Lowered& lowered, const std::string& why) {
  size_t first = lowered.live[0];
  for (size_t i : lowered.live) {
    if (ChooseFor(node, call.target, call.operands[i].type).rule == Rule::kNative) continue;
    first = i;
    break;
  }
  return Refuse({"C1", T::kName, "operand " + std::to_string(first),
                 call.operands[first].ToString(),
                 "something that " + call.target.name + " can do: " + why,
                 "Convert it to another type, or use groups of one size"});
}

// A module with one rule of the node; results in it, and what they cost.
template <class T>
struct Built {
  hlo::Module module;
  hlo::Computation entry;
  Emitter emitter;
  Values operands;
  Values results;

  Built(const Built&) = delete;  // the emitter points into it
  Built(const T& node, const Call& call, const Lowered& lowered, std::optional<Rule> forced)
      : entry(module.Begin(
            "entry", call.target.partitioned ? hlo::RankIs::kPartition : hlo::RankIs::kReplica)),
        emitter(call.target, &module, &entry, Hash(lowered.identity), nullptr) {
    for (size_t i : lowered.live) operands.push_back(entry.Parameter(call.operands[i]));
    if (lowered.takes_token) {
      emitter.set_token(entry.Parameter({ElementType::kS32, {1}}));
    }
    results = Lower(node, emitter, operands, forced);
    if (lowered.takes_token) results.push_back(emitter.token());
  }
};

// What people see in XLA's dumps: the call, and how it was lowered.
template <class T>
hlo::Metadata MetadataOf(const T& node, const CallSite& site, const Lowered& lowered) {
  std::string how = lowered.name + " " + Name(lowered.rule);
  if (!lowered.why.empty()) how += ": " + lowered.why;
  std::string ways;
  for (const std::string& way : lowered.ways) ways += (ways.empty() ? "" : "; ") + way;
  if (!ways.empty()) how += " (" + ways + ")";
  return {std::string("xla_cc.") + node.kName, how, site.file, site.line};
}

template <class T>
Status Build(const T& node, const Call& call, const CallSite& site, std::optional<Rule> forced,
             Lowered* lowered) {
  Built<T> built(node, call, *lowered, forced);
  const Emitter& emitter = built.emitter;
  if (!emitter.refusal().empty()) return Refused(node, call, *lowered, emitter.refusal());
  lowered->unchanged =
      emitter.opcodes().empty() &&
      std::equal(built.operands.begin(), built.operands.end(), built.results.begin(),
                 [](const Value& x, const Value& y) { return x.id == y.id; });
  built.entry.Return(built.results);
  built.module.Finish(built.entry);
  lowered->ways = emitter.ways();
  lowered->bytes = built.module.Serialize(MetadataOf(node, site, *lowered));
  lowered->text = built.module.text();
  lowered->opcodes = emitter.opcodes();
  lowered->encounters = emitter.encounters();
  lowered->cost = lowered->native_cost = emitter.cost();
  if (lowered->rule == Rule::kFallback) {
    lowered->native_cost = Built<T>(node, call, *lowered, Rule::kNative).emitter.cost();
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<Shape>> ResultShapes(const Collective& collective,
                                        const std::vector<Shape>& operands, const Target& target) {
  return Visit(collective, [&](auto node) -> Result<std::vector<Shape>> {
    const Call call{target, operands};
    XLA_CC_RETURN_IF_ERROR(RequireCountable(node.kName, call, target.world_size));
    XLA_CC_RETURN_IF_ERROR(node.Verify(call));
    return node.Results(call);
  });
}

Result<Lowered> Lower(const Collective& collective, const std::vector<Shape>& operands,
                      const Target& target, const CallSite& site, std::optional<Rule> forced) {
  return Visit(collective, [&](auto node) -> Result<Lowered> {
    const Call call{target, operands};
    XLA_CC_RETURN_IF_ERROR(RequireCountable(node.kName, call, target.world_size));
    XLA_CC_RETURN_IF_ERROR(node.Verify(call));
    Lowered lowered;
    lowered.collective = node;
    lowered.name = ToString(lowered.collective);
    // Ranks that run a program each know their own group only.
    lowered.identity = ToString(lowered.collective, /*with_groups=*/target.partitioned);
    for (const Shape& shape : operands) lowered.identity += " " + shape.ToString();
    lowered.results = node.Results(call);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].Elements() > 0) lowered.live.push_back(i);
    }
    ChooseForCall(node, call, forced, &lowered);
    if (lowered.live.empty()) return lowered;
    lowered.takes_token = target.CallsTakeTokens();
    XLA_CC_RETURN_IF_ERROR(Build(node, call, site, forced, &lowered));
    lowered.fingerprint = Hex(Hash(lowered.bytes));
    return lowered;
  });
}

}  // namespace xla_cc
