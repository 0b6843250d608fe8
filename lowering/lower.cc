#include "lowering/lower.h"

#include <algorithm>
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

// What the capability table is asked of a node, read off its fields.
struct QueryFiller {
  Query* query;
  void operator()(const char*, const Pairs& pairs) { query->form = FormOf(pairs); }
  bool several_sizes = false;
  void operator()(const char*, const Groups& groups) {
    several_sizes = !groups.Uniform();
    query->form = FormOf(groups, query->target.world_size);
    query->group_size = groups.Size(query->target.world_size);
  }
  void operator()(const char*, ReduceKind kind) {
    query->reduce = Reduction{kind}.InstructionKind();
  }
  template <class Other>
  void operator()(const char*, const Other&) {}
};

template <class T>
Choice ChooseFor(const T& node, const Target& target, ElementType type) {
  Query query{OpOf<T>::value, target, type, std::nullopt};
  QueryFiller filler{&query};
  T::Fields(node, filler);
  const Choice choice = Choose(query);
  if (query.form != Form::kPartial || !filler.several_sizes) return choice;
  // Such groups were not measured: they are taken where either form alone is.
  if (choice.rule != Rule::kNative) return choice;
  query.form = Form::kUnequal;
  return Choose(query);
}

// Operands that one instruction may take together: a list of one type where the compiler takes
// lists, else each alone. In order of first appearance, so that every rank builds the same.
template <class T>
std::vector<std::vector<size_t>> Batches(const T& node, const Target& target, const Values& xs,
                                         std::optional<Rule> forced) {
  std::vector<std::vector<size_t>> batches;
  std::map<ElementType, size_t> open;
  for (size_t i = 0; i < xs.size(); ++i) {
    const ElementType type = xs[i].shape.type;
    const auto found = open.find(type);
    if (found != open.end()) {
      batches[found->second].push_back(i);
      continue;
    }
    const bool lists = forced ? *forced == Rule::kNative && HasListForm(OpOf<T>::value)
                              : ChooseFor(node, target, type).lists;
    if (lists) open[type] = batches.size();
    batches.push_back({i});
  }
  return batches;
}

}  // namespace

template <class T>
bool Takes(const T& op, const Emitter& emitter, ElementType type) {
  return ChooseFor(op, emitter.target(), type).rule == Rule::kNative;
}

namespace {

// Fallbacks that lead back to themselves, as the entries of an application may make them.
constexpr int kDeepest = 8;

template <class T>
Values LowerBatch(const T& op, Emitter& emitter, const Values& operands, Rule rule,
                  const std::string& why) {
  if (rule == Rule::kFallback && emitter.depth() < kDeepest) {
    emitter.Enter();
    const Values results = op.LowerFallback(emitter, operands);
    emitter.Leave();
    if (!results.empty()) return results;
  }
  // What was refused is emitted all the same: the shapes hold, and the module is dropped.
  if (rule != Rule::kNative) emitter.Refuse(why);
  return op.LowerNative(emitter, operands);
}

template <class T>
Values LowerAs(const T& op, Emitter& emitter, const Values& xs, std::optional<Rule> forced) {
  Values results(xs.size());
  for (const std::vector<size_t>& batch : Batches(op, emitter.target(), xs, forced)) {
    Values operands;
    for (size_t i : batch) operands.push_back(xs[i]);
    const Choice choice = ChooseFor(op, emitter.target(), operands[0].shape.type);
    const Values lowered =
        LowerBatch(op, emitter, operands, forced.value_or(choice.rule), choice.why);
    for (size_t i = 0; i < batch.size(); ++i) results[batch[i]] = lowered[i];
  }
  return results;
}

}  // namespace

template <class T>
Values Lower(const T& op, Emitter& emitter, const Values& xs) {
  return LowerAs(op, emitter, xs, std::nullopt);
}

#define COLLECTIVE(Type, name)                                 \
  template Values Lower(const Type&, Emitter&, const Values&); \
  template bool Takes(const Type&, const Emitter&, ElementType);
#include "lowering/collectives.def"
#undef COLLECTIVE

namespace {

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

  Built(const T& node, const Call& call, const hlo::Metadata& metadata, const Lowered& lowered,
        std::optional<Rule> forced)
      : module(metadata),
        entry(module.Begin(
            "entry", call.target.partitioned ? hlo::RankIs::kPartition : hlo::RankIs::kReplica)),
        emitter(call.target, &module, &entry, Channel(lowered), nullptr) {
    for (size_t i : lowered.live) operands.push_back(entry.Parameter(call.operands[i]));
    if (lowered.takes_token) {
      emitter.set_token(entry.Parameter({ElementType::kS32, {1}}));
    }
    results = LowerAs(node, emitter, operands, forced);
    if (lowered.takes_token) results.push_back(emitter.token());
  }

  // Ranks that meet by channel agree on it because it follows from what they must agree on. The
  // low bit is set: zero would mean no channel.
  static int64_t Channel(const Lowered& lowered) {
    return static_cast<int64_t>((Hash(lowered.identity) & 0x7ffffffe) | 1);
  }
};

template <class T>
Status Build(const T& node, const Call& call, const CallSite& site, std::optional<Rule> forced,
             Lowered* lowered) {
  // How it was lowered stands in the module's metadata: it is what people see in XLA's dumps.
  std::string name = lowered->name + " " + Name(lowered->rule);
  if (!lowered->why.empty()) name += ": " + lowered->why;
  Built<T> built(node, call, {std::string("xla_cc.") + T::kName, name, site.file, site.line},
                 *lowered, forced);
  const Emitter& emitter = built.emitter;
  if (!emitter.refusal().empty()) return Refused(node, call, *lowered, emitter.refusal());
  lowered->unchanged =
      emitter.opcodes().empty() &&
      std::equal(built.operands.begin(), built.operands.end(), built.results.begin(),
                 [](const Value& x, const Value& y) { return x.id == y.id; });
  built.entry.Return(built.results);
  built.module.Finish(built.entry);
  lowered->bytes = built.module.Serialize();
  lowered->text = built.module.text();
  lowered->opcodes = emitter.opcodes();
  lowered->cost = lowered->native_cost = emitter.cost();
  if (lowered->rule == Rule::kFallback) {
    lowered->native_cost = Built<T>(node, call, {}, *lowered, Rule::kNative).emitter.cost();
  }
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
                      const Target& target, const CallSite& site, std::optional<Rule> forced) {
  return Visit(collective, [&](auto node) -> Result<Lowered> {
    const Call call{target, operands};
    XLA_CC_RETURN_IF_ERROR(RequireCountable(node.kName, call, 1));
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
    lowered.takes_token = target.RanksAreThreads();
    XLA_CC_RETURN_IF_ERROR(Build(node, call, site, forced, &lowered));
    lowered.fingerprint = Hex(Hash(lowered.bytes));
    return lowered;
  });
}

}  // namespace xla_cc
