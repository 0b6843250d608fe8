// A call of torch.distributed on this rank: what the ranks of its group tell each other of it
// before anything can block on it, and what the flight recorder keeps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "torch_xla_cc/site.h"

namespace xla_cc {

using Timeout = std::chrono::milliseconds;

// The ranks of a group, and this rank's place among them.
struct Group {
  std::string name;              // what torch.distributed calls it
  std::vector<int64_t> members;  // ranks of the world, by rank of the group
  int64_t world_size = 0;
  int rank = 0;  // of this process or thread, in the group
  int size() const { return static_cast<int>(members.size()); }
  int64_t own() const { return members[rank]; }  // in the world
  bool IsWorld() const;                          // in its order
};

// One end of a message in a batch of sends and receives.
struct MessageEnd {
  bool sends = false;
  int64_t peer = 0;  // in the group
  int64_t tag = 0;
  int64_t dtype = 0;  // a c10::ScalarType
  std::vector<int64_t> dims;
  std::string text;  // the call, with file and line
};

struct GroupCall {
  // kIssued: not yet compared with those of the other ranks.
  enum class State { kIssued, kRunning, kDone, kFailed };

  std::string what;               // the op and all that must be equal on the ranks
  std::string part;               // what is sent or received, point to point: equal at both ends
  std::vector<int64_t> sent;      // to each rank of the group, of an exchange of parts
  std::vector<int64_t> received;  // from each
  std::vector<MessageEnd> ends;   // of a batch
  uint64_t number = 0;  // of the rank's collectives in the group, from 1; else point to point
  bool meets = false;   // ranks that are threads wait for each other before it
  bool async = false;
  bool through_host = false;
  Timeout timeout{0};
  Site site;

  // For the recorder. The clock is that of Python's time.time(), in us.
  std::string group;
  int64_t rank = 0;
  std::atomic<State> state{State::kIssued};
  std::atomic<int64_t> issued_us{0};
  std::atomic<int64_t> ended_us{0};
  std::function<void()> end_event;  // of the profiler, if it runs

  // Once.
  void End(State end);
};
using CallPtr = std::shared_ptr<GroupCall>;

const char* StateName(GroupCall::State state);
int64_t NowUs();
std::string Milliseconds(Timeout timeout);

// What travels of a call.
struct Said {
  std::string what;
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
  std::vector<MessageEnd> ends;
  std::string site;
};

// Needs the interpreter lock, for the site.
Said SaidOf(const GroupCall& call);
std::string Encode(const Said& said);
Said Decode(const std::string& text);

// Why calls do not fit together, one a rank of the group; empty if they do. If `sites`, they must
// also come from one line.
std::string Mismatch(const Group& group, const std::vector<Said>& calls, bool sites);

// "rank 3": its number in the world.
std::string RankName(const Group& group, int rank);

}  // namespace xla_cc
