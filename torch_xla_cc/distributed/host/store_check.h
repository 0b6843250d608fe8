// What ranks that are processes tell each other over the store of their group, before anything can
// block on a call: what each is about to do, that it has failed, and that it is alive.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "torch_xla_cc/distributed/host/connections.h"
#include "torch_xla_cc/groupcall/group_call.h"

namespace xla_cc {

enum class CheckMode { kOff, kFingerprint, kFull };

class StoreCheck {
 public:
  StoreCheck(RankGroup group, const StorePtr& store, CheckMode mode);

  // Waits until all ranks of the group have come to their call of that number, and compares. Throws
  // CollectiveMismatch or CollectiveTimeout, on all ranks. On one thread at a time. What each rank
  // said, if that is not the same for all: sizes, ends of messages.
  std::vector<Said> Compare(const GroupCall& call, const Said& said);
  // Forgets this rank's part of earlier calls, which all have read; takes a while.
  void CleanUp();
  // Tells the others what this rank does, point to point: they may wait for something else.
  void Note(const Said& said);

  // Has all ranks of the group raise this at their next call, or while they wait.
  void Break(const std::string& why, bool timeout);
  // Throws what a rank of the group has broken it with.
  void ThrowIfBroken();
  // Why a call has failed that all ranks have come to, or that needs `peer` alone: throws.
  [[noreturn]] void Explain(const GroupCall& call, const Said& said, const std::string& error,
                            int peer);

 private:
  using Bytes = std::vector<uint8_t>;
  // The last call of a rank, of those that the group numbers or of the others.
  struct Last {
    uint64_t order = 0;  // among both
    uint64_t number = 0;
    Said said;
  };

  // Of each rank: it is there when the rank has come to that call, and says the same.
  std::vector<std::string> Keys(uint64_t number, const Said& said) const;
  Bytes Numbered(uint64_t number, const Said& said);
  static Last Parsed(const std::string& numbered);
  // Until all of them are there; throws what has kept them away, and then takes back its own.
  void AwaitLonger(const std::vector<std::string>& keys, const GroupCall& call, const Said& said);
  void AwaitKeys(const std::vector<std::string>& keys, const GroupCall& call, const Said& said);
  void ThrowIfTheyDiffer(const std::vector<Said>& calls);
  // What all do, if all have come to that call.
  std::vector<Said> AllAt(uint64_t number);
  bool Delete(const std::string& key);
  std::string Get(const std::string& key, const std::string& otherwise);
  Last LastOf(const char* kind, int rank);
  // The ranks of the group that are known to have died.
  std::vector<int> Dead();
  std::string LastCall(int rank);
  [[noreturn]] void ThrowMissing(const GroupCall& call, const Said& said,
                                 const std::vector<int>& dead);

  RankGroup group_;
  CheckMode mode_;
  StoreKeys store_;
  std::vector<std::string> to_delete_;
  uint64_t cleaned_up_ = 0;
  std::atomic<uint64_t> order_{0};
  std::mutex mutex_;
  std::vector<std::string> processes_;  // by rank, once known
};
using StoreCheckPtr = std::shared_ptr<StoreCheck>;

}  // namespace xla_cc
