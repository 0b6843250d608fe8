// torch_xla runs operators that it has not on the CPU, .item() among them, and counts them by name
// in a map without a lock. Ranks that are threads and come there at one moment, one of them with a
// name that is new, end the process.
#pragma once

#include <cstdint>

namespace xla_cc {

// Has torch_xla put the names of all operators there are into that map, those left out that an
// earlier call has named; how many are new. What it counts by that is for the caller to clear.
// For one thread, before ranks run.
int64_t NameFallbacks();

}  // namespace xla_cc
