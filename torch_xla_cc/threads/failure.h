// Why ranks cannot go on.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "torch_xla_cc/site.h"

namespace xla_cc {

// Text, with places between. They are resolved to file and line by the rank that raises it, since
// that takes the interpreter lock, which no one may wait for here.
struct Failure {
  struct Phrase {
    std::string text;
    Site site;  // printed after the text, if there is one
  };
  enum class Kind { kOther, kMismatch, kTimeout };

  std::vector<Phrase> phrases;
  Kind kind = Kind::kOther;

  explicit operator bool() const { return !phrases.empty(); }
  std::string Text() const;  // takes the interpreter lock
  // As the exception of its kind. Takes the interpreter lock.
  [[noreturn]] void Throw() const;
};

// Of an exception that is one of RanksDisagree, or another.
Failure FailureOf(const std::exception_ptr& error);

inline Failure Because(const std::string& text, Failure::Kind kind = Failure::Kind::kOther) {
  return {{{text, {}}}, kind};
}

}  // namespace xla_cc
