// What goes wrong, as types. One Python exception stands for each (python_side.h).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace xla_cc {

// Bad input: TypeError and ValueError.
class BadType : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
class BadValue : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The ranks cannot go on together: torch_xla_cc.RanksDisagree, and its CollectiveMismatchError and
// CollectiveTimeoutError.
class RanksDisagree : public std::runtime_error {
 public:
  explicit RanksDisagree(const std::string& what, uint64_t failure = 0)
      : std::runtime_error(what), failure(failure) {}
  uint64_t failure;  // the number of what ranks that are threads are told (threads/failure.h)
};
class CollectiveMismatch : public RanksDisagree {
  using RanksDisagree::RanksDisagree;
};
class CollectiveTimeout : public RanksDisagree {
  using RanksDisagree::RanksDisagree;
};

// torch_xla_cc.FallbackForbidden.
class FallbackForbidden : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace xla_cc
