#include "torch_xla_cc/graph/tokens.h"

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

}  // namespace

py::object Token(int64_t rank) {
  const auto found = Tokens().find(rank);
  return found == Tokens().end() ? py::none() : found->second;
}

py::object TokenOrFirst(int64_t rank) {
  const py::object token = Token(rank);
  return token.is_none() ? CallPython(Python().first_token, rank) : token;
}

// What is let go may run Python code, and so come back here: after the map has changed.
void SetToken(int64_t rank, py::object token) { std::swap(Tokens()[rank], token); }

void ResetToken(int64_t rank) { const auto dropped = Tokens().extract(rank); }

void ResetTokens() { std::exchange(Tokens(), {}); }

}  // namespace xla_cc
