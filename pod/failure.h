// What goes wrong in the plugin: thrown inside of it, and handed to the caller as a PJRT_Error.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "pod/abi/types.h"

namespace xla_cc::pod {

class Failure : public std::exception {
 public:
  Failure(abi::Code code, std::string message) : code_(code), message_(std::move(message)) {}
  abi::Code code() const { return code_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  abi::Code code_;
  std::string message_;
};

}  // namespace xla_cc::pod
