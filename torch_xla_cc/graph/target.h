// What lowerings on this thread are for.
#pragma once

#include <optional>

#include "lowering/capability/capability.h"
#include "lowering/target.h"

namespace xla_cc {

// The target of lowerings: a thread's own if it has set one (lowering_for), else the running
// device's, which Python tells on first use. Needs the interpreter lock.
const Target& CurrentTarget();
void SetThreadTarget(std::optional<Target> target);
const std::optional<Target>& ThreadTarget();
// torch_xla has other devices from here on, or counts its ranks anew.
void ForgetRunningTarget();

// The rule that lowerings on this thread take whatever the table says, for measuring.
void SetForcedRule(std::optional<Rule> rule);
std::optional<Rule> ForcedRule();

}  // namespace xla_cc
