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
#include <memory>
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
  // Waits until the rank may hand its graph to XLA, and forgets what was pending. Call without the
  // interpreter lock.
  //
  // Ranks that gave one `program_hash` go one first, alone, and the others together when it has
  // handed its graph over: it compiles, they find the program. Different programs go at once: one
  // after the other, the first would wait in its collectives longer than XLA:CPU allows.
  Failure Meet(int64_t rank, Site site, const std::string& program_hash);
  // The rank has handed over the graph that it met for. To be called once after each Meet.
  void Dispatched(int64_t rank);
  // This rank has returned from its function.
  void Finish(int64_t rank, Site site);
  // This rank has raised: the others shall stop.
  void Fail(int64_t rank, const std::string& message);
  // All shall stop, and none go on: unlike a disagreement, this is final.
  void Abort(const std::string& message);
  // The failure that this rank has not been told yet, if there is one.
  Failure TakeFailure(int64_t rank);

 private:
  struct Issued {
    PlanPtr plan;
    Site site;
  };
  // Ranks that went on together.
  struct Batch {
    int64_t leader = -1;  // goes first; none if the programs differ
    bool leader_dispatched = false;
    bool leader_failed = false;
    size_t to_dispatch = 0;
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
    std::shared_ptr<Batch> batch;  // the last one
  };
  // The pending collectives of a rank, by the group that it is in, in order.
  using ByGroup = std::map<std::vector<int64_t>, std::vector<const Issued*>>;

  // All of these with mutex_ held.
  void Evaluate(int64_t caller);
  bool AllAlike() const;
  void Release(const std::vector<int64_t>& ranks, int64_t caller);
  ByGroup PendingByGroup(int64_t rank) const;
  Failure FindMismatch(const std::map<int64_t, ByGroup>& waiting) const;
  Failure Compare(int64_t a, int64_t b, const std::vector<int64_t>& group, const ByGroup& of_a,
                  const ByGroup& of_b) const;
  Failure NobodyGoesOn() const;
  Failure Deadlock(const std::vector<int64_t>& ranks) const;
  Failure Missing(int64_t rank) const;
  Failure TakeFailureLocked(int64_t rank);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;  // empty: no world runs
  std::chrono::milliseconds timeout_{0};
  Failure failure_;
  bool final_ = false;  // no rank goes on after failure_
};

}  // namespace xla_cc
