// What applications have registered, over what was measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lowering/capability/query.h"

namespace xla_cc {

// An entry of an application. Empty sets stand for all.
struct Registration {
  std::string device;  // "tpu:v5e", or a kind, "neuron", for all its generations
  Op op;
  std::vector<hlo::ElementType> types;
  std::vector<ReduceKind> kinds;
  std::vector<Form> forms;
  bool native = false;
  std::string why;
};
// Returns a handle. Any thread may call these.
int64_t Register(const Registration& registration);
bool Unregister(int64_t handle);
// The last one that says something of this.
std::optional<Registration> FindRegistered(const Query& query);

}  // namespace xla_cc
