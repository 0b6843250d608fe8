#include "torch_xla_cc/distributed/host/machine_ranks.h"

#include <unistd.h>

#include <fstream>
#include <sstream>

namespace xla_cc {
namespace {

constexpr std::chrono::milliseconds kAnswer{5000};  // how long to wait for what is there

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The fields of /proc/<pid>/stat behind the name, which may hold anything: state first.
std::vector<std::string> Stat(const std::string& pid) {
  const std::string line = FirstLine("/proc/" + pid + "/stat");
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

constexpr size_t kState = 0;
constexpr size_t kStart = 19;  // when the process began

// The machine and its process numbers: those of a container are others.
std::string Place() {
  char space[64] = {};
  const ssize_t size = readlink("/proc/self/ns/pid", space, sizeof(space) - 1);
  return FirstLine("/proc/sys/kernel/random/boot_id") + " " +
         (size > 0 ? std::string(space, size) : "?");
}

std::string ThisProcess() {
  const std::string pid = std::to_string(getpid());
  const std::vector<std::string> stat = Stat(pid);
  return pid + " " + (stat.size() > kStart ? stat[kStart] : "?");
}

bool HasDied(const std::string& process) {
  std::istringstream fields(process);
  std::string pid;
  std::string start;
  if (!(fields >> pid >> start)) return false;
  const std::vector<std::string> stat = Stat(pid);
  if (stat.size() <= kStart) return true;
  return stat[kStart] != start || stat[kState] == "Z" || stat[kState] == "X";
}

// In the store: how many have told of themselves at a place, and each of them by its number there.
std::string CountAt(const std::string& place) { return "at/" + place; }
std::string KeyAt(const std::string& place, int64_t number) {
  return CountAt(place) + "/" + std::to_string(number);
}

}  // namespace

MachineRanks::MachineRanks(int rank, const StoreKeys& store) : store_(store), place_(Place()) {
  const Connection connection = store_.Connect();
  const std::string told = std::to_string(rank) + " " + ThisProcess();
  connection->set(KeyAt(place_, connection->add(CountAt(place_), 1)), told);
}

bool MachineRanks::Read() {
  try {
    const Connection store = store_.Connect();
    const size_t told = store->add(CountAt(place_), 0);
    std::vector<std::string> keys;
    for (size_t number = read_ + 1; number <= told; ++number) {
      keys.push_back(KeyAt(place_, static_cast<int64_t>(number)));
    }
    if (!keys.empty()) {
      for (const std::vector<uint8_t>& bytes : store.Await(keys, kAnswer)) {
        const std::string text(bytes.begin(), bytes.end());
        const size_t space = text.find(' ');
        processes_[std::stoi(text.substr(0, space))] = text.substr(space + 1);
      }
    }
    read_ = told;
    return true;
  } catch (const std::exception&) {
    return false;  // the store is gone, or one of them between the two things that it tells
  }
}

void MachineRanks::AllHaveTold() {
  const std::lock_guard lock(mutex_);
  if (!all_) all_ = Read();
}

std::vector<int> MachineRanks::Dead() {
  const std::lock_guard lock(mutex_);
  if (!all_) Read();
  std::vector<int> dead;
  for (const auto& [rank, process] : processes_) {
    if (HasDied(process)) dead.push_back(rank);
  }
  return dead;
}

}  // namespace xla_cc
