// The token that orders a rank's collectives: each takes that of the one before, and gives one.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace xla_cc {

// Whether any rank has one. Of all of these this alone does not need the interpreter lock.
bool AnyToken();
// The token after the last collective that is pending; none (None) before the first.
py::object Token(int64_t rank);
// The same, or the start of a chain, which Python makes.
py::object TokenOrFirst(int64_t rank);
void SetToken(int64_t rank, py::object token);
// How many calls there are in the longest chain of a rank, whose chains end with their programs, as
// those of a pod do. Needs no interpreter lock.
int64_t LongestChain();
// Forgets the token of a rank (its graph was thrown away), or of all.
void ResetToken(int64_t rank);
void ResetTokens();

// Of two threads of a rank that is a process one has the chain at a time. It is not held up at a
// gate (op_gate.h), since who has closed that may be the next to want the chain.
class ChainTurn {
 public:
  ChainTurn();
  ~ChainTurn();
  ChainTurn(const ChainTurn&) = delete;
  ChainTurn& operator=(const ChainTurn&) = delete;

  static bool OfThisThread();
};

}  // namespace xla_cc
