#include "torch_xla_cc/graph/tokens.h"

#include <atomic>
#include <map>
#include <utility>

#include "torch_xla_cc/python_side.h"

namespace xla_cc {
namespace {

// By rank. Never destroyed: what it holds must not be let go after the interpreter.
std::map<int64_t, py::object>& Tokens() {
  static auto* tokens = new std::map<int64_t, py::object>;
  return *tokens;
}

std::atomic<size_t> count = 0;  // of them

}  // namespace

bool AnyToken() { return count > 0; }

py::object Token(int64_t rank) {
  const auto found = Tokens().find(rank);
  return found == Tokens().end() ? py::none() : found->second;
}

py::object TokenOrFirst(int64_t rank) {
  const py::object token = Token(rank);
  return token.is_none() ? CallPython(Python().first_token, rank) : token;
}

// What is let go may run Python code, and so come back here: after the map has changed.
void SetToken(int64_t rank, py::object token) {
  std::swap(Tokens()[rank], token);
  count = Tokens().size();
}

void ResetToken(int64_t rank) {
  const auto dropped = Tokens().extract(rank);
  count = Tokens().size();
}

void ResetTokens() {
  const auto dropped = std::exchange(Tokens(), {});
  count = 0;
}

}  // namespace xla_cc
