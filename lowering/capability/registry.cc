#include "lowering/capability/registry.h"

#include <map>
#include <mutex>
#include <shared_mutex>

#include "lowering/capability/bits.h"

namespace xla_cc {
namespace {

struct Registry {
  std::shared_mutex mutex;
  int64_t last = 0;
  std::map<int64_t, Registration> entries;
};
Registry& TheRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

}  // namespace

std::optional<Registration> FindRegistered(const Query& query) {
  Registry& registry = TheRegistry();
  const std::shared_lock lock(registry.mutex);
  const std::string& device = query.target.device;
  for (auto at = registry.entries.rbegin(); at != registry.entries.rend(); ++at) {
    const Registration& entry = at->second;
    if (entry.op == query.op && (entry.device == device || entry.device == KindOf(device)) &&
        (Bits(entry.types) & Bit(query.type)) && (Bits(entry.forms) & Bit(query.form)) &&
        (!query.reduce || (Bits(entry.kinds) & Bit(*query.reduce)))) {
      return entry;
    }
  }
  return std::nullopt;
}

int64_t Register(const Registration& registration) {
  Registry& registry = TheRegistry();
  const std::unique_lock lock(registry.mutex);
  registry.entries[++registry.last] = registration;
  return registry.last;
}

bool Unregister(int64_t handle) {
  Registry& registry = TheRegistry();
  const std::unique_lock lock(registry.mutex);
  return registry.entries.erase(handle) > 0;
}

}  // namespace xla_cc
