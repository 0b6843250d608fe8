#include "lowering/target.h"

#include <algorithm>
#include <map>
#include <vector>

#include "lowering/errors.h"

namespace xla_cc {
namespace {

constexpr int64_t kLargestWorld = int64_t{1} << 20;

constexpr char kPartitioned[] = "spmd:";

constexpr int64_t kNoTopology = 0;
constexpr int64_t kBadTopology = -1;

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Whether it may be a topology: "2x4", "4x4x8", "16"; and not the "v5x8" of eight devices.
bool IsTopology(const std::string& text) {
  return text.find_first_not_of("0123456789x") == std::string::npos;
}

// A topology as numbers; some are 0 if it is none after all.
std::vector<int64_t> DimsOf(const std::string& text) {
  std::vector<int64_t> dims;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('x', at), text.size());
    const bool counts = end != at && end - at <= 7;
    dims.push_back(counts ? std::stoll(text.substr(at, end - at)) : 0);
    at = end + 1;
  }
  return dims;
}

int64_t DevicesOfTopology(const std::string& text) {
  int64_t product = 1;
  for (const int64_t size : DimsOf(text)) {
    product *= size;
    if (product < 1 || product > kLargestWorld) return kBadTopology;
  }
  return product;
}

// Where "h100x8" begins to count: at an 'x' between digits, and not that of rtx4090.
size_t CountAt(const std::string& text) {
  const size_t x = text.rfind('x');
  const bool counts = x != std::string::npos && x > 0 && IsDigit(text[x - 1]) &&
                      x + 1 < text.size() &&
                      text.find_first_not_of("0123456789", x + 1) == std::string::npos;
  return counts ? x : std::string::npos;
}

// The world size that a target's name tells: after the last ':' (tpu:v5e:2x4), or after an 'x' that
// follows a number (gpu:h100x8, and not gpu:rtx4090).
int64_t DevicesOfName(const std::string& name) {
  const size_t colon = name.rfind(':');
  if (colon == std::string::npos || colon + 1 == name.size()) return kNoTopology;
  const std::string last = name.substr(colon + 1);
  if (IsTopology(last)) return DevicesOfTopology(last);
  if (!IsLetter(last[0])) return kBadTopology;
  const size_t x = CountAt(last);
  return x == std::string::npos ? kNoTopology : DevicesOfTopology(last.substr(x + 1));
}

// "tpu:v5e:2x4" -> "v5e", "gpu:h100x8" -> "h100"; empty where none is named.
std::string Generation(const std::string& name) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return "";
  std::string second = name.substr(colon + 1, name.find(':', colon + 1) - colon - 1);
  if (second.empty() || !IsLetter(second[0])) return "";
  return second.substr(0, CountAt(second));
}

// kind, kind:generation or kind:generation:topology, none of them empty.
bool IsWellFormed(const std::string& name) {
  return !name.empty() && name.front() != ':' && name.back() != ':' &&
         name.find("::") == std::string::npos && std::count(name.begin(), name.end(), ':') <= 2;
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

Result<Target> ParseTarget(const std::string& full_name, int64_t world_size) {
  static const std::map<std::string, DeviceKind> kinds = {
      {"cpu", DeviceKind::kCpu},  {"tpu", DeviceKind::kTpu},  {"gpu", DeviceKind::kGpu},
      {"cuda", DeviceKind::kGpu}, {"rocm", DeviceKind::kGpu}, {"neuron", DeviceKind::kNeuron},
      {"pod", DeviceKind::kPod},
  };
  const bool partitioned = full_name.rfind(kPartitioned, 0) == 0;
  const std::string name = partitioned ? full_name.substr(sizeof(kPartitioned) - 1) : full_name;
  if (!IsWellFormed(name)) {
    return Refuse({"T1", "target", "name", "'" + full_name + "'",
                   "a device kind, with generation and topology as wanted",
                   "Write for instance 'cpu', 'tpu:v5e:2x4' or 'gpu:h100x8'"});
  }
  std::string kind = Lower(name.substr(0, name.find(':')));
  Target target;
  const auto found = kinds.find(kind);
  target.kind = found == kinds.end() ? DeviceKind::kOther : found->second;
  target.name = full_name;
  target.partitioned = partitioned;
  // CUDA's GPUs, and others', have one table.
  if (target.kind == DeviceKind::kGpu) kind = "gpu";
  const std::string generation = Lower(Generation(name));
  target.device = generation.empty() ? kind : kind + ":" + generation;
  const int64_t told = DevicesOfName(name);
  if (told == kBadTopology) {
    return Refuse({"T2", "target", "name", "'" + name + "'",
                   "a topology of 1 to " + std::to_string(kLargestWorld) + " devices",
                   "Write for instance 'tpu:v5e:2x4' or 'gpu:h100x8'"});
  }
  target.world_size = world_size != 0 ? world_size : told;
  if (target.world_size < 1 || target.world_size > kLargestWorld) {
    return Refuse({"T2", "target", "world_size", std::to_string(world_size),
                   "1 to " + std::to_string(kLargestWorld) + " for '" + name + "'",
                   "Give a world_size, or a topology in the name: 'tpu:v5e:2x4'"});
  }
  if (told != kNoTopology && told != target.world_size) {
    return Refuse({"T2", "target", "world_size", std::to_string(world_size),
                   "the number of devices of '" + name + "', " + std::to_string(told),
                   "Leave world_size out, or name another topology"});
  }
  const std::string last = name.substr(name.rfind(':') + 1);
  if (target.kind == DeviceKind::kTpu && told != kNoTopology && IsTopology(last)) {
    const std::vector<int64_t> dims = DimsOf(last);
    if (dims.size() > 1) target.topology = TopologyOf(target.device, dims);
  }
  return target;
}

}  // namespace xla_cc
