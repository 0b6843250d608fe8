#include "lowering/lower.h"

#include <map>
#include <optional>

namespace xla_cc {

using hlo::ElementType;
using hlo::Shape;
using hlo::Value;
using hlo::Values;

namespace {

// FNV-1a: stable from run to run and machine to machine.
uint64_t Hash(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

std::string Hex(uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) out[i] = kDigits[value & 15];
  return out;
}

// Whether following the pairs from some rank leads back to it. No source is named twice.
bool HasCycle(const Pairs& pairs) {
  std::map<int64_t, int64_t> target_of(pairs.begin(), pairs.end());
  while (!target_of.empty()) {
    const int64_t start = target_of.begin()->first;
    for (int64_t at = start;;) {
      const auto next = target_of.find(at);
      if (next == target_of.end()) break;
      at = next->second;
      target_of.erase(next);
      if (at == start) return true;
    }
  }
  return false;
}

// What the capability table is asked of a node, read off its fields.
struct QueryFiller {
  Query* query;
  void operator()(const char*, const Pairs& pairs) { query->cyclic_pairs = HasCycle(pairs); }
  void operator()(const char*, const Groups& groups) { query->uniform_groups = groups.Uniform(); }
  void operator()(const char*, ReduceKind kind) {
    query->reduce = Reduction{kind}.InstructionKind();
  }
  template <class Other>
  void operator()(const char*, const Other&) {}
};

template <class T>
Choice ChooseFor(const T& node, const Target& target, ElementType type) {
  Query query{OpOf<T>::value, target.kind, type, std::nullopt};
  QueryFiller filler{&query};
  T::Fields(node, filler);
  return Choose(query);
}

// Operands that one instruction may take together: a list of one type where the compiler takes
// lists, else each alone. In order of first appearance, so that every rank builds the same.
template <class T>
std::vector<std::vector<size_t>> Batches(const T& node, const Target& target, const Values& xs) {
  std::vector<std::vector<size_t>> batches;
  std::map<ElementType, size_t> open;
  for (size_t i = 0; i < xs.size(); ++i) {
    const ElementType type = xs[i].shape.type;
    const auto found = open.find(type);
    if (found != open.end()) {
      batches[found->second].push_back(i);
      continue;
    }
    if (ChooseFor(node, target, type).lists) open[type] = batches.size();
    batches.push_back({i});
  }
  return batches;
}

}  // namespace

template <class T>
Values Lower(const T& op, Emitter& emitter, const Values& xs) {
  Values results(xs.size());
  for (const std::vector<size_t>& batch : Batches(op, emitter.target(), xs)) {
    Values operands;
    for (size_t i : batch) operands.push_back(xs[i]);
    const Choice choice = ChooseFor(op, emitter.target(), operands[0].shape.type);
    if (choice.rule == Rule::kRefused) emitter.Refuse(choice.why);
    const Values lowered = choice.rule != Rule::kFallback ? op.LowerNative(emitter, operands)
                                                          : op.LowerFallback(emitter, operands);
    for (size_t i = 0; i < batch.size(); ++i) results[batch[i]] = lowered[i];
  }
  return results;
}

#define COLLECTIVE(Type, name) template Values Lower(const Type&, Emitter&, const Values&);
#include "lowering/collectives.def"
#undef COLLECTIVE

namespace {

// The rule of the whole call: fallback if any operand needs it.
template <class T>
void ChooseForCall(const T& node, const Call& call, Lowered* lowered) {
  for (size_t i : lowered->live) {
    const Choice choice = ChooseFor(node, call.target, call.operands[i].type);
    if (choice.rule != Rule::kFallback) continue;
    lowered->rule = Rule::kFallback;
    lowered->why = choice.why;
  }
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

template <class T>
Status Build(const T& node, const Call& call, const CallSite& site, Lowered* lowered) {
  hlo::Module module({std::string("xla_cc.") + T::kName, lowered->name, site.file, site.line});
  hlo::Computation entry = module.Begin("entry");
  Values operands;
  for (size_t i : lowered->live) operands.push_back(entry.Parameter(call.operands[i]));
  Value token;
  if (lowered->takes_token) token = entry.Parameter({ElementType::kS32, {1}});
  // Ranks that meet by channel agree on it because it follows from what they must agree on. The
  // low bit is set: zero would mean no channel.
  const int64_t channel = static_cast<int64_t>((Hash(lowered->identity) & 0x7ffffffe) | 1);
  Emitter emitter(call.target, &module, &entry, channel, lowered->takes_token ? &token : nullptr);
  Values results = Lower(node, emitter, operands);
  if (!emitter.refusal().empty()) return Refused(node, call, *lowered, emitter.refusal());
  if (lowered->takes_token) results.push_back(emitter.token());
  entry.Return(results);
  module.Finish(entry);
  lowered->bytes = module.Serialize();
  lowered->text = module.text();
  lowered->opcodes = emitter.opcodes();
  return Status::Ok();
}

}  // namespace

Result<std::vector<Shape>> ResultShapes(const Collective& collective,
                                        const std::vector<Shape>& operands, const Target& target) {
  return Visit(collective, [&](auto node) -> Result<std::vector<Shape>> {
    const Call call{target, operands};
    XLA_CC_RETURN_IF_ERROR(RequireCountable(node.kName, call, 1));
    XLA_CC_RETURN_IF_ERROR(node.Verify(call));
    return node.Results(call);
  });
}

Result<Lowered> Lower(const Collective& collective, const std::vector<Shape>& operands,
                      const Target& target, const CallSite& site) {
  return Visit(collective, [&](auto node) -> Result<Lowered> {
    const Call call{target, operands};
    XLA_CC_RETURN_IF_ERROR(RequireCountable(node.kName, call, 1));
    XLA_CC_RETURN_IF_ERROR(node.Verify(call));
    Lowered lowered;
    lowered.collective = node;
    lowered.name = ToString(lowered.collective);
    lowered.identity = ToString(lowered.collective, /*with_groups=*/false);
    for (const Shape& shape : operands) lowered.identity += " " + shape.ToString();
    lowered.results = node.Results(call);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].Elements() > 0) lowered.live.push_back(i);
    }
    ChooseForCall(node, call, &lowered);
    if (lowered.live.empty()) return lowered;
    lowered.takes_token = target.RanksAreThreads();
    XLA_CC_RETURN_IF_ERROR(Build(node, call, site, &lowered));
    lowered.fingerprint = Hex(Hash(lowered.bytes));
    return lowered;
  });
}

}  // namespace xla_cc
