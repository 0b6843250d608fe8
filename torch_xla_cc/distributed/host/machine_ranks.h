// Which ranks of a group run on this machine, and which of those have died. Others cannot be seen
// from here.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "torch_xla_cc/distributed/host/connections.h"

namespace xla_cc {

class MachineRanks {
 public:
  // Tells the others on this machine of this process.
  MachineRanks(int rank, const StoreKeys& store);

  // Reads who they are when all ranks of the group have told, while whoever keeps the store lives.
  void AllHaveTold();
  // Those that are known to have died.
  std::vector<int> Dead();

 private:
  // Those that have told since the last time; whether it could.
  bool Read();

  const StoreKeys store_;
  const std::string place_;
  std::mutex mutex_;
  size_t read_ = 0;
  bool all_ = false;
  std::map<int, std::string> processes_;  // by rank
};

}  // namespace xla_cc
