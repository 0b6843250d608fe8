#include "lowering/capability/form.h"

#include <map>

#include "lowering/model/torus.h"

namespace xla_cc {

Form FormOf(const Groups& groups, int64_t world_size) {
  if (groups.IsWorld()) return Form::kWorld;
  if (!groups.Covers(world_size)) return Form::kPartial;
  if (!groups.Uniform()) return Form::kUnequal;
  return groups.Iota(world_size) ? Form::kEqual : Form::kScrambled;
}

Form FormOf(const Groups& groups, const Target& target) {
  const Form form = FormOf(groups, target.world_size);
  const bool even = form == Form::kScrambled && groups.Ascending() &&
                    AreEvenBoxes(groups, target.topology, target.world_size);
  return even ? Form::kEqual : form;
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
