// Ranks that are threads of this process: what each has issued, and where they meet.
//
// XLA:CPU compares nothing between ranks: different sizes read out of bounds, a missing rank aborts
// the process after 15 s. So before a rank runs its graph it comes to Meet(), which lets the ranks
// go on only when every collective that they are about to run has its like on every rank of its
// group. Everything else is an error, raised on every rank, that names both call sites.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "torch_xla_cc/plans.h"
#include "torch_xla_cc/site.h"

namespace xla_cc {

// Why the ranks cannot go on: text, with call sites between. They are resolved to file and line by
// the rank that raises it, since that takes the interpreter lock, which no one may wait for here.
struct Failure {
  struct Part {
    std::string text;
    Site site;  // printed after the text, if there is one
  };
  std::vector<Part> parts;
  explicit operator bool() const { return !parts.empty(); }
  std::string Text() const;  // needs the interpreter lock
};

class Ranks {
 public:
  static Ranks& Get();

  // A new world of running ranks; the outcome of an earlier one is forgotten.
  void Start(int64_t world_size, std::chrono::milliseconds timeout);
  void Stop();

  // Notes a collective of this rank. Fails if a rank has failed, or no world was started.
  Failure Issue(int64_t rank, PlanPtr plan, Site site);
  // Whether the rank has issued collectives that have not run.
  bool HasPending(int64_t rank);
  // What Meet agreed on, for the ranks that it let go together.
  struct Agreement {
    bool same_program = true;  // all gave the same program_hash
  };
  // Waits until the rank's pending collectives can run, and forgets them. Call without the
  // interpreter lock. `program_hash` is compared between the ranks that go on together.
  Failure Meet(int64_t rank, Site site, const std::string& program_hash, Agreement* agreement);
  // This rank has returned from its function.
  void Finish(int64_t rank, Site site);
  // This rank has raised: the others shall stop.
  void Fail(int64_t rank, const std::string& message);
  // The failure that this rank has not been told yet, if there is one.
  Failure TakeFailure(int64_t rank);

 private:
  struct Issued {
    PlanPtr plan;
    Site site;
  };
  struct Rank {
    std::vector<Issued> pending;
    Issued last;
    bool waiting = false;
    bool finished = false;
    bool told = false;  // of failure_
    uint64_t released = 0;
    Site waits_at;
    std::string program_hash;
    Agreement agreement;
  };
  // The pending collectives of a rank, by the group that it is in, in order.
  using ByGroup = std::map<std::vector<int64_t>, std::vector<const Issued*>>;

  // All of these with mutex_ held.
  void Evaluate();
  bool AllAlike() const;
  void Release(const std::vector<int64_t>& ranks);
  ByGroup PendingByGroup(int64_t rank) const;
  Failure Compare(int64_t a, int64_t b, const std::vector<int64_t>& group, const ByGroup& of_a,
                  const ByGroup& of_b) const;
  Failure Deadlock(const std::vector<int64_t>& ranks) const;
  Failure Missing(int64_t rank) const;
  Failure TakeFailureLocked(int64_t rank);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;  // empty: no world runs
  std::chrono::milliseconds timeout_{0};
  Failure failure_;
};

}  // namespace xla_cc
