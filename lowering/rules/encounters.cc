#include "lowering/rules/encounters.h"

#include "lowering/hlo/shape.h"

namespace xla_cc {

std::string ToString(const Encounters& encounters, int64_t rank, int64_t world_size) {
  std::string text;
  for (const Encounter& encounter : encounters) {
    text += (text.empty() ? "" : "; ") + encounter.what + " of [" +
            hlo::ToString(encounter.groups.Of(rank, world_size)) + "]";
  }
  return text;
}

}  // namespace xla_cc
