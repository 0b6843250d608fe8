// What happens when a collective is not the instruction: it is counted, and where it costs more
// than that would, allowed, warned about once, or forbidden.
#pragma once

#include <optional>
#include <string>

#include "torch_xla_cc/graph/plan_cache.h"
#include "torch_xla_cc/site.h"

namespace xla_cc {

enum class Policy { kAllow, kWarn, kError };
std::optional<Policy> PolicyFromName(const std::string& name);
std::string Name(Policy policy);

// Of the process; and of a thread, which has none of its own at first.
void SetPolicy(Policy policy);
Policy GetPolicy();
void SetThreadPolicy(std::optional<Policy> policy);
std::optional<Policy> ThreadPolicy();

// To be called for each call of a plan whose rule is fallback or host, with the interpreter lock
// held. Throws FallbackForbidden, or what a filter of warnings makes of a warning.
void OnFallback(const Plan& plan, const std::vector<hlo::Shape>& operands, const Site& site);
// The same for a call of torch.distributed, as text, that goes through the host.
void OnHost(const std::string& call, const std::string& why, const Site& site);

}  // namespace xla_cc
