#include "torch_xla_cc/graph/tokens.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/python_side.h"

namespace xla_cc {
namespace {

struct Chain {
  py::object token;
  int64_t calls = 0;
};

// By rank. Never destroyed: what it holds must not be let go after the interpreter.
std::map<int64_t, Chain>& Chains() {
  static auto* chains = new std::map<int64_t, Chain>;
  return *chains;
}

std::recursive_mutex& ChainMutex() {
  static auto* mutex = new std::recursive_mutex;  // as the map
  return *mutex;
}

thread_local int turns = 0;
std::atomic<size_t> count = 0;  // of them
std::atomic<int64_t> longest = 0;

void Changed() {
  count = Chains().size();
  int64_t most = 0;
  for (const auto& [rank, chain] : Chains()) most = std::max(most, chain.calls);
  longest = most;
}

}  // namespace

bool AnyToken() { return count > 0; }
int64_t LongestChain() { return longest; }

py::object Token(int64_t rank) {
  const auto found = Chains().find(rank);
  return found == Chains().end() ? py::none() : found->second.token;
}

py::object TokenOrFirst(int64_t rank) {
  const py::object token = Token(rank);
  return token.is_none() ? CallPython(Python().first_token, rank) : token;
}

// What is let go may run Python code, and so come back here: after the map has changed.
void SetToken(int64_t rank, py::object token) {
  Chain& chain = Chains()[rank];
  ++chain.calls;
  std::swap(chain.token, token);
  Changed();
}

void ResetToken(int64_t rank) {
  const auto dropped = Chains().extract(rank);
  Changed();
}

void ResetTokens() {
  const auto dropped = std::exchange(Chains(), {});
  Changed();
}

ChainTurn::ChainTurn() {
  if (!ChainMutex().try_lock()) Unlocked([] { ChainMutex().lock(); });  // who has it may need that
  ++turns;
}

ChainTurn::~ChainTurn() {
  --turns;
  ChainMutex().unlock();
}

bool ChainTurn::OfThisThread() { return turns > 0; }

}  // namespace xla_cc
