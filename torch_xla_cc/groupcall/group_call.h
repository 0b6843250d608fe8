// A call of torch.distributed on this rank: what the ranks of its group tell each other of it, and
// what the flight recorder keeps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "torch_xla_cc/groupcall/said.h"
#include "torch_xla_cc/site.h"

namespace xla_cc {

using Timeout = std::chrono::milliseconds;

// Longer than anybody waits, and as a point in time not past the end of a clock.
constexpr Timeout kLongest = std::chrono::hours(10 * 365 * 24);
// As far as clocks count. A datetime.timedelta may be longer, and is far below 0 then by overflow;
// one a little below 0 is of a deadline that has passed: it becomes 1 ms, since 0 is for none.
Timeout Bounded(Timeout timeout);

struct GroupCall {
  // kIssued: not yet compared with those of the other ranks.
  enum class State { kIssued, kRunning, kDone, kFailed };

  std::string what;  // as in Said, and the next two and the ends
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
  std::vector<TransferEnd> ends;
  std::string payload;  // what is sent or received, point to point: equal at both ends
  uint64_t number = 0;  // of the rank's collectives in the group, from 1; else point to point
  bool meets = false;   // ranks that are threads wait for each other before it
  bool async = false;
  bool through_host = false;
  bool is_counted = false;  // by World, as a part of its rank's graph
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

// What it says to the others. Takes the interpreter lock, for the site.
Said SaidOf(const GroupCall& call);
// The same without a site, for who only compares.
Said SaidWithoutSite(const GroupCall& call);

}  // namespace xla_cc
