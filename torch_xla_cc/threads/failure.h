// Why ranks cannot go on.
#pragma once

#include <cstdint>
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
  uint64_t number = 0;  // of no other failure; 0: no rank is told of it yet

  explicit operator bool() const { return !phrases.empty(); }
  std::string Text() const;  // takes the interpreter lock
  // Tells it from all others, also of the same text. It has one for good: what a rank is told, and
  // what it breaks its group with for that, are one failure.
  void GiveNumber();
  // As the exception of its kind, which keeps the number. Takes the interpreter lock.
  [[noreturn]] void Throw() const;
};

// Of an exception that is one of RanksDisagree, or another.
Failure FailureOf(const std::exception_ptr& error);

inline Failure Because(const std::string& text, Failure::Kind kind = Failure::Kind::kOther) {
  return {{{text, {}}}, kind};
}

}  // namespace xla_cc
