#include "lowering/capability.h"

#include <map>
#include <mutex>
#include <shared_mutex>
#include <string_view>

namespace xla_cc {
namespace {

// Sets of types, kinds, forms and numbers of operands, as bits.
constexpr uint32_t kAny = ~0u;
template <class Enum>
constexpr uint32_t Bit(Enum value) {
  return 1u << static_cast<int>(value);
}
template <class Enum>
uint32_t Bits(const std::vector<Enum>& values) {
  uint32_t bits = values.empty() ? kAny : 0;
  for (const Enum value : values) bits |= Bit(value);
  return bits;
}

enum class Count { kOne, kSeveral };

// What a compiler does not take. A cell is native if no row holds it.
struct Row {
  std::string_view device;
  int op;
  uint32_t types;
  uint32_t kinds;  // meaningless for data movement
  uint32_t forms;
  uint32_t counts;
  int64_t least_ranks;  // the row holds from that many on
  const char* why;
};

// A type that a program cannot even take as a parameter: then there is no fallback either.
constexpr int kParameter = -1;
#define COLLECTIVE(Type, name) constexpr int k##Type = static_cast<int>(Op::k##Type);
#include "lowering/collectives.def"
#undef COLLECTIVE

#define T(type) Bit(hlo::ElementType::k##type)
#define K(kind) Bit(ReduceKind::k##kind)
#define F(form) Bit(Form::k##form)
#define C(count) Bit(Count::k##count)
constexpr std::string_view kEveryDevice = "*";
constexpr std::string_view kPartitions = "spmd";  // on every device, in SPMD mode

#define ROW(device, op, types, kinds, forms, counts, least_ranks, why) \
  {device, op, types, kinds, forms, counts, least_ranks, why},
constexpr Row kTable[] = {
#include "lowering/capability_table.inc"
// What is known without measuring.
#include "lowering/capability_fixed.inc"
};
#undef ROW
#undef C
#undef F
#undef K
#undef T

// XLA:CPU's limits that come of ranks which run a program each. Partitions run one.
constexpr std::string_view kThreads = "ranks on threads";
bool IsOfThreads(const Row& row) {
  return std::string_view(row.why).substr(0, kThreads.size()) == kThreads;
}

std::string_view KindOf(std::string_view device) { return device.substr(0, device.find(':')); }

bool IsMeasured(const std::string& device) {
  for (const Row& row : kTable) {
    if (device == row.device) return true;
  }
  return false;
}

// Groups that are as large as a world are treated as one by a compiler.
bool Holds(const Row& row, const Query& query) {
  if (row.forms & Bit(query.form) && query.target.world_size >= row.least_ranks) return true;
  return row.forms & Bit(Form::kWorld) && row.least_ranks > 0 && query.form != Form::kChain &&
         query.form != Form::kRing && query.group_size >= row.least_ranks;
}

const Row* Find(const Query& query, int op, Count count) {
  // A device whose generation was not measured is held for the least of its kind.
  const std::string& device = query.target.device;
  const std::string_view kind = IsMeasured(device) ? "" : KindOf(device);
  for (const Row& row : kTable) {
    if (query.target.partitioned && IsOfThreads(row)) continue;
    if (row.op == op && (row.types & Bit(query.type)) && (row.counts & Bit(count)) &&
        (!query.reduce || (row.kinds & Bit(*query.reduce))) && Holds(row, query) &&
        (row.device == kEveryDevice || (row.device == kPartitions && query.target.partitioned) ||
         (kind.empty() ? device == row.device : kind == KindOf(row.device)))) {
      return &row;
    }
  }
  return nullptr;
}

struct Registry {
  std::shared_mutex mutex;
  int64_t last = 0;
  std::map<int64_t, Registration> entries;
};
Registry& TheRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

std::optional<Registration> FindRegistered(const Query& query) {
  Registry& registry = TheRegistry();
  const std::shared_lock lock(registry.mutex);
  const std::string& device = query.target.device;
  for (auto at = registry.entries.rbegin(); at != registry.entries.rend(); ++at) {
    const Registration& entry = at->second;
    if (entry.op == query.op && (entry.device == device || entry.device == KindOf(device)) &&
        (Bits(entry.types) & Bit(query.type)) && (Bits(entry.forms) & Bit(query.form)) &&
        (!query.reduce || (Bits(entry.kinds) & Bit(*query.reduce)))) {
      return entry;
    }
  }
  return std::nullopt;
}

}  // namespace

bool HasListForm(Op op) {
  return op == Op::kAllGather || op == Op::kAllReduce || op == Op::kReduceScatter;
}

Choice Choose(const Query& query) {
  if (const Row* row = Find(query, kParameter, Count::kOne)) {
    return {Rule::kRefused, false, row->why, ""};
  }
  const int op = static_cast<int>(query.op);
  const Row* several = HasListForm(query.op) ? Find(query, op, Count::kSeveral) : nullptr;
  Choice native{Rule::kNative, HasListForm(query.op) && several == nullptr, "", ""};
  if (several != nullptr) native.why_alone = several->why;
  if (const auto entry = FindRegistered(query)) {
    if (entry->native) return native;
    return {Rule::kFallback, false, entry->why, ""};
  }
  if (const Row* row = Find(query, op, Count::kOne)) return {Rule::kFallback, false, row->why, ""};
  return native;
}

int64_t Register(const Registration& registration) {
  Registry& registry = TheRegistry();
  const std::unique_lock lock(registry.mutex);
  registry.entries[++registry.last] = registration;
  return registry.last;
}

bool Unregister(int64_t handle) {
  Registry& registry = TheRegistry();
  const std::unique_lock lock(registry.mutex);
  return registry.entries.erase(handle) > 0;
}

Form FormOf(const Groups& groups, int64_t world_size) {
  if (groups.IsWorld()) return Form::kWorld;
  if (!groups.Covers(world_size)) return Form::kPartial;
  if (!groups.Uniform()) return Form::kUnequal;
  return groups.Iota(world_size) ? Form::kEqual : Form::kScrambled;
}

Form FormOf(const Pairs& pairs) {
  // No rank is named twice as source: follow the pairs from each until they end or come back.
  std::map<int64_t, int64_t> target_of(pairs.begin(), pairs.end());
  while (!target_of.empty()) {
    const int64_t start = target_of.begin()->first;
    for (int64_t at = start;;) {
      const auto next = target_of.find(at);
      if (next == target_of.end()) break;
      at = next->second;
      target_of.erase(next);
      if (at == start) return Form::kRing;
    }
  }
  return Form::kChain;
}

std::string Name(Rule rule) {
  switch (rule) {
    case Rule::kNative:
      return "native";
    case Rule::kFallback:
      return "fallback";
    case Rule::kRefused:
      return "refused";
    case Rule::kHost:
      return "host";
  }
  return "invalid";
}

std::string Name(Form form) {
  switch (form) {
#define FORM(enumerator, name) \
  case Form::enumerator:       \
    return name;
    XLA_CC_FORMS(FORM)
#undef FORM
  }
  return "invalid";
}

std::optional<Form> FormFromName(const std::string& name) {
#define FORM(enumerator, text) \
  if (name == text) return Form::enumerator;
  XLA_CC_FORMS(FORM)
#undef FORM
  return std::nullopt;
}

}  // namespace xla_cc
