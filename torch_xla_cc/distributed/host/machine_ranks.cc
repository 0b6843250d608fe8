#include "torch_xla_cc/distributed/host/machine_ranks.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

namespace xla_cc {
namespace {

constexpr std::chrono::milliseconds kAnswer{5000};  // how long to wait for what is there
constexpr int64_t kLooksAfter = 64;  // of more on one machine: those that have told next

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

// The machine and its process numbers: those of a container are others. Short, for many keys.
std::string Place() {
  char space[64] = {};
  const ssize_t size = readlink("/proc/self/ns/pid", space, sizeof(space) - 1);
  const std::string boot = FirstLine("/proc/sys/kernel/random/boot_id");
  // Where nothing says which machine it is, each process is at a place of its own.
  if (boot.empty() || size <= 0) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    return std::to_string(getpid()) + "/" + std::to_string(now);
  }
  const std::string place = boot + " " + std::string(space, size);
  return std::to_string(std::hash<std::string>()(place));
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
  if (stat.size() <= kStart) {  // it has gone, or its owner hides it
    const long number = std::strtol(pid.c_str(), nullptr, 10);
    return number > 0 && kill(static_cast<pid_t>(number), 0) != 0 && errno == ESRCH;
  }
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
  number_ = connection->add(CountAt(place_), 1);
  connection->set(KeyAt(place_, number_), std::to_string(rank) + " " + ThisProcess());
}

bool MachineRanks::Read() {
  try {
    const Connection store = store_.Connect();
    const int64_t told = store->add(CountAt(place_), 0);
    std::map<int64_t, Process> others;
    std::vector<int64_t> numbers;
    std::vector<std::string> keys;
    for (int64_t i = 0; i < std::min(told - 1, kLooksAfter); ++i) {
      const int64_t number = (number_ + i) % told + 1;  // from 1
      if (const auto known = others_.find(number); known != others_.end()) {
        others.insert(*known);
      } else {
        numbers.push_back(number);
        keys.push_back(KeyAt(place_, number));
      }
    }
    const auto values =
        keys.empty() ? std::vector<std::vector<uint8_t>>{} : store.Await(keys, kAnswer);
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string text(values[i].begin(), values[i].end());
      const size_t space = text.find(' ');
      others[numbers[i]] = {std::stoi(text.substr(0, space)), text.substr(space + 1)};
    }
    others_ = std::move(others);
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
  for (const auto& [number, other] : others_) {
    if (HasDied(other.text)) dead.push_back(other.rank);
  }
  return dead;
}

}  // namespace xla_cc
