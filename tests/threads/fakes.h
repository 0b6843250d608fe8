// What the pure parts of threads/ call in the extension, faked; and calls to compare.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lowering/lower.h"
#include "torch_xla_cc/threads/comparison.h"

namespace xla_cc {

// A place that is printed as "line <number>".
Site Line(int number);

// An all_reduce among the ranks of each group; another `operand` is another call.
std::shared_ptr<const Lowered> AllReduceOf(std::vector<std::vector<int64_t>> groups,
                                           const std::string& operand = "f32[2]");

// A graph calls it when it is compiled: waits for those of its peers, where they meet at gates.
// False if it is turned away.
bool AtGate();

// How often a gate has been made, by anybody.
int GatesMade();

}  // namespace xla_cc
