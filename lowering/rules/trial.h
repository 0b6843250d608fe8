// What a lowering would cost, by trying it.
#pragma once

#include <functional>
#include <vector>

#include "lowering/rules/emitter.h"

namespace xla_cc {

using Trial = std::function<void(Emitter&, const hlo::Value&)>;

// The number of the trial that costs least, each on a module of its own; the first of equals, and
// the first of all if the device can do none of them.
size_t Cheapest(const Emitter& e, const hlo::Value& x, const std::vector<Trial>& trials);

}  // namespace xla_cc
