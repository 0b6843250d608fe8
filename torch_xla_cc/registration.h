// What all kernels are registered with.
#pragma once

#include <c10/util/Exception.h>
#include <torch/library.h>

namespace xla_cc {

// torch warns of each kernel that takes the place of another; here that is what is meant.
class SilentRegistration final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
  const c10::WarningUtils::WarningHandlerGuard guard_{this};
};

// Kernels for the life of the process, as those of any library.
inline torch::Library* NewLibrary(const char* name, c10::DispatchKey key) {
  return new torch::Library(torch::Library::IMPL, name, key, __FILE__, __LINE__);
}

}  // namespace xla_cc
