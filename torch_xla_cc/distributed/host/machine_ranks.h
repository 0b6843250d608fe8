// Which ranks of a group run on this machine, and which of those have died. Others cannot be seen
// from here. Of very many on one machine each looks after some.
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
  // Those that it looks after, as far as they have told; whether it could.
  bool Read();

  const StoreKeys store_;
  const std::string place_;
  std::mutex mutex_;
  int64_t number_ = 0;  // of this one at the place
  bool all_ = false;
  struct Process {
    int rank;
    std::string text;
  };
  std::map<int64_t, Process> others_;  // by their numbers
};

}  // namespace xla_cc
