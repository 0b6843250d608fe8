#include "lowering/target.h"

#include <map>

#include "lowering/errors.h"

namespace xla_cc {
namespace {

constexpr int64_t kLargestWorld = int64_t{1} << 20;

// The product of "2x4" or "4x4x8", 0 if it is nothing of the kind.
int64_t DevicesOfTopology(const std::string& text) {
  int64_t product = 1;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t end = std::min(text.find('x', at), text.size());
    if (end == at || end - at > 6) return 0;
    for (size_t i = at; i < end; ++i) {
      if (text[i] < '0' || text[i] > '9') return 0;
    }
    product *= std::stoll(text.substr(at, end - at));
    if (product <= 0 || product > kLargestWorld) return 0;
    at = end + 1;
  }
  return product;
}

// The world size that a target's name tells: after the last ':' (tpu:v5e:2x4), or after the last
// 'x' (gpu:h100x8).
int64_t DevicesOfName(const std::string& name) {
  const size_t colon = name.rfind(':');
  if (colon == std::string::npos) return 0;
  if (const int64_t devices = DevicesOfTopology(name.substr(colon + 1))) return devices;
  const size_t x = name.rfind('x');
  return x != std::string::npos && x > colon ? DevicesOfTopology(name.substr(x + 1)) : 0;
}

}  // namespace

Result<Target> ParseTarget(const std::string& name, int64_t world_size) {
  static const std::map<std::string, DeviceKind> kinds = {
      {"cpu", DeviceKind::kCpu},  {"tpu", DeviceKind::kTpu},  {"gpu", DeviceKind::kGpu},
      {"cuda", DeviceKind::kGpu}, {"rocm", DeviceKind::kGpu}, {"neuron", DeviceKind::kNeuron},
  };
  std::string kind = name.substr(0, name.find(':'));
  for (char& c : kind) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (kind.empty()) {
    return Refuse({"T1", "target", "name", "'" + name + "'",
                   "a device kind, with generation and topology as wanted",
                   "Write for instance 'cpu', 'tpu:v5e:2x4' or 'gpu:h100x8'"});
  }
  Target target;
  const auto found = kinds.find(kind);
  target.kind = found == kinds.end() ? DeviceKind::kOther : found->second;
  target.name = name;
  const int64_t told = DevicesOfName(name);
  target.world_size = world_size != 0 ? world_size : told;
  if (target.world_size < 1 || target.world_size > kLargestWorld) {
    return Refuse({"T2", "target", "world_size", std::to_string(world_size),
                   "1 to " + std::to_string(kLargestWorld) + " for '" + name + "'",
                   "Give a world_size, or a topology in the name: 'tpu:v5e:2x4'"});
  }
  if (told != 0 && told != target.world_size) {
    return Refuse({"T2", "target", "world_size", std::to_string(world_size),
                   "the number of devices of '" + name + "', " + std::to_string(told),
                   "Leave world_size out, or name another topology"});
  }
  return target;
}

}  // namespace xla_cc
