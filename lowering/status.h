// Errors as values: lowering/ never throws. The binding turns a Status into one Python exception.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace xla_cc {

class [[nodiscard]] Status {
 public:
  Status() = default;
  static Status Ok() { return {}; }
  static Status Error(std::string message) {
    Status status;
    status.message_ = std::move(message);
    return status;
  }
  bool ok() const { return !message_.has_value(); }
  const std::string& message() const { return *message_; }

 private:
  std::optional<std::string> message_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT: implicit by intent
  Result(Status status) : state_(std::move(status)) {}  // NOLINT: implicit by intent
  bool ok() const { return std::holds_alternative<T>(state_); }
  const Status& status() const { return std::get<Status>(state_); }
  T& value() { return std::get<T>(state_); }
  const T& value() const { return std::get<T>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace xla_cc

// Leaves the enclosing function when a step failed.
#define XLA_CC_RETURN_IF_ERROR(expression)                                      \
  do {                                                                          \
    if (::xla_cc::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
