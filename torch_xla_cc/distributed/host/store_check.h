// What ranks that are processes tell each other over the store of their group, before anything can
// block on a call: what each is about to do, that it has failed, and that it is alive.
//
// A call costs a rank a few requests, however many ranks there are. Each counts itself where those
// count who say the same of their call of that number; who makes the count full is the last, and
// says that all are there, for which the others wait. A rank that gives up takes kGaveUp from the
// count, so the store itself decides which came first: if the count was full, all have come and it
// goes on; if not, it never will be, and a rank that comes later cannot begin alone. Of several
// that give up the first knows which it is, and the others wait for what it says. Ranks that say
// different things are counted in different places, and wait: the last of all to have waited for a
// while reads what each said. Keys of a call are deleted when all have come to a later one.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "torch_xla_cc/distributed/host/connections.h"
#include "torch_xla_cc/distributed/host/machine_ranks.h"
#include "torch_xla_cc/groupcall/group_call.h"

namespace xla_cc {

enum class CheckMode { kOff, kFingerprint, kFull };

class StoreCheck {
 public:
  StoreCheck(RankGroup group, const StorePtr& store, CheckMode mode);

  // Waits until all ranks of the group have come to their call of that number, and compares. Throws
  // CollectiveMismatch or CollectiveTimeout, on all ranks. On one thread at a time. What each rank
  // said if `tell`, which is the same on all, and what they say differs: sizes, ends of messages.
  std::vector<Said> Compare(const GroupCall& call, const Said& said, bool tell);
  // Deletes this rank's part of earlier calls, which all have read; takes a while.
  void CleanUp();
  // Tells the others what this rank does, point to point: they may wait for something else.
  void Note(const Said& said);

  // Has all ranks of the group raise this at their next call, or while they wait.
  void Break(const std::string& why, bool timeout);
  // Throws what a rank of the group has broken it with.
  void ThrowIfBroken();
  // The same. Whether this rank of the group is known to have ended; all others, if below 0.
  bool IsGone(int peer);
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
  // Keys of one call, shared by the ranks that say the same of it.
  struct Roll {
    std::string count;  // of those that have come
    std::string all;    // is there when all have
    std::string told;   // what each said, if that is not the same
    std::string late;   // how many have waited for long, whatever they say
  };

  Roll RollOf(uint64_t number, const Said& said) const;
  Bytes Numbered(uint64_t number, const Said& said);
  static Last Parsed(const std::string& numbered);
  static std::string LastCall(const Last& numbered, const Last& other);
  // This rank has come last: compares what each said, if it differs, and lets the others go on.
  std::vector<Said> LetAllGoOn(const Connection& store, const Roll& roll, bool differs, bool tell);
  // Until all have come; throws what has kept them away.
  void AwaitLonger(const GroupCall& call, const Said& said, const Roll& roll);
  // The same, and whether they have within that time; not if some are found `dead`.
  bool Watch(Timeout limit, const Roll& roll, std::vector<int>* dead);
  // Whether all may have come: it is then said soon, or why not.
  bool GiveUp(const Roll& roll);
  void ThrowIfTheyDiffer(const std::vector<Said>& calls);
  bool Delete(const std::string& key);
  std::string Get(const std::string& key, const std::string& otherwise);
  // By rank; none if a rank has not made the group yet.
  std::vector<Last> ReadLast(const Connection& store, const char* kind) const;
  // By rank, as far as it is known.
  std::vector<Last> LastOfAll(const char* kind);
  // Of several ranks that fail at a time one tells why: throws what it tells, on the others.
  void LetOneTell();
  [[noreturn]] void ThrowMissing(const GroupCall& call, const Said& said,
                                 const std::vector<int>& dead);

  RankGroup group_;
  CheckMode mode_;
  StoreKeys store_;
  MachineRanks machine_;
  std::deque<std::pair<uint64_t, std::string>> to_delete_;  // by the number of the call
  uint64_t compared_ = 0;                                   // the last call
  uint64_t cleaned_up_ = 0;
  std::atomic<uint64_t> order_{0};
};
using StoreCheckPtr = std::shared_ptr<StoreCheck>;

}  // namespace xla_cc
