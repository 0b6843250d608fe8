#include "lowering/capability/capability.h"

#include "lowering/capability/table.h"

namespace xla_cc {

bool HasListForm(Op op) {
  return op == Op::kAllGather || op == Op::kAllReduce || op == Op::kReduceScatter;
}

Choice Choose(const Query& query) {
  if (const Row* row = FindRowOfParameter(query)) {
    return {Rule::kRefused, false, row->why, ""};
  }
  const Row* several = HasListForm(query.op) ? FindRow(query, Count::kSeveral) : nullptr;
  Choice native{Rule::kNative, HasListForm(query.op) && several == nullptr, "", ""};
  if (several != nullptr) native.why_alone = several->why;
  if (const auto entry = FindRegistered(query)) {
    if (entry->native) return native;
    return {Rule::kFallback, false, entry->why, ""};
  }
  if (const Row* row = FindRow(query, Count::kOne)) return {Rule::kFallback, false, row->why, ""};
  return native;
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

}  // namespace xla_cc
