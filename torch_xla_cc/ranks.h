// Ranks that are threads of this process: what each has issued, and where they meet.
//
// XLA:CPU compares nothing between ranks: different sizes read out of bounds, a missing rank aborts
// the process after 15 s. So before a rank runs its graph it comes to Meet(), which lets the ranks
// go on only when every collective that they are about to run has its like on every rank of its
// group. Everything else is an error, raised on every rank, that names both call sites.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
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
  enum class Kind { kOther, kMismatch, kTimeout };
  std::vector<Part> parts;
  Kind kind = Kind::kOther;
  explicit operator bool() const { return !parts.empty(); }
  std::string Text() const;  // needs the interpreter lock
  // As the exception of its kind. Needs the interpreter lock.
  [[noreturn]] void Throw() const;
};

// How a rank's graph is handed over. Called on any rank's thread; neither may throw.
struct HandOver {
  std::function<std::string()> run;  // without waiting for the results; says why it could not
  std::function<void()> wait;        // until the rank's device is done; none if it need not be
  bool compiled = false;             // already: nothing of it takes long before it runs
  // Set before `run` fails because of a peer: its error is then not the rank's.
  mutable std::atomic<bool> turned_away{false};
};

class Ranks {
 public:
  // A collective that a rank has issued.
  struct Issued {
    PlanPtr plan;
    Site site;
  };
  static constexpr std::chrono::milliseconds kNoLimit = std::chrono::milliseconds::max();

  static Ranks& Get();

  // A new world of running ranks; the outcome of an earlier one is forgotten.
  void Start(int64_t world_size, std::chrono::milliseconds timeout);
  void Stop();

  // Notes a collective of this rank. Fails if a rank has failed, or no world was started.
  Failure Issue(int64_t rank, PlanPtr plan, Site site);
  // Whether the rank has issued collectives that have not run.
  bool HasPending(int64_t rank);
  // What the rank has issued that has not run, in order.
  std::vector<Issued> Pending(int64_t rank);
  // Forgets what the rank has pending.
  void Drop(int64_t rank);
  // How often what the rank had pending was forgotten, after a failure.
  int64_t Losses(int64_t rank);
  // Whether all that the rank has handed over is known to be done.
  bool IsIdle(int64_t rank);
  // How long this rank's next meetings may take, if that is less than the world's time limit.
  void SetLimit(int64_t rank, std::chrono::milliseconds limit);
  // All ranks that wait to run their graphs, or are `coming` to, are to raise this; `rank`, which
  // found it, does by itself.
  void Disagree(int64_t rank, const std::set<int64_t>& coming, Failure failure);
  // Waits until the rank may hand its graph to XLA, hands it over, and forgets what was pending.
  // Call without the interpreter lock.
  //
  // One of the ranks that gave the same `program_hash` hands over the graphs of all: the first is
  // compiled, the others are found, and nobody wakes for it. Ranks with different programs hand
  // them over, and so compile them, at the same time. Where any of them may have to be compiled, no
  // program starts before all are (gate.h).
  Failure Meet(int64_t rank, Site site, const std::string& program_hash, const HandOver& graph);
  // This rank has returned from its function.
  void Finish(int64_t rank, Site site);
  // This rank has raised: the others shall stop.
  void Fail(int64_t rank, const std::string& message);
  // All shall stop, and none go on: unlike a disagreement, this is final.
  void Abort(const std::string& message);
  // The failure that this rank has not been told yet, if there is one.
  Failure TakeFailure(int64_t rank);

 private:
  // Ranks that go on together.
  struct Batch {
    std::map<int64_t, const HandOver*> graphs;  // by rank; each outlives its handing over
    std::map<int64_t, int64_t> leaders;         // by rank: who hands over its graph
    size_t programs = 0;                        // different ones
    bool gated = false;                         // a compile is to be expected
    size_t to_compile = 0;                      // graphs that are not at their gates yet
    size_t to_hand_over = 0;                    // graphs
    bool failed = false;                        // a graph could not be run, and none was
  };
  struct Rank {
    std::vector<Issued> pending;
    Issued last;
    bool waiting = false;
    bool finished = false;
    bool told = false;  // of failure_
    bool idle = true;
    uint64_t released = 0;
    int64_t losses = 0;
    std::chrono::milliseconds limit = kNoLimit;
    Site waits_at;
    std::string program_hash;
    const HandOver* graph = nullptr;  // while waiting
    std::shared_ptr<Batch> batch;     // the last one
  };
  // The pending collectives of a rank, by the group that it is in, in order.
  using ByGroup = std::map<std::vector<int64_t>, std::vector<const Issued*>>;

  // These without mutex_.
  void HandOverAlone(int64_t rank, const HandOver& graph);
  void HandOverLed(int64_t leader, Batch& batch);
  // Whether the graphs of the batch that the leader hands over were.
  bool RunAtOnce(int64_t leader, Batch& batch);
  bool RunAtGate(int64_t leader, Batch& batch);

  // All of these with mutex_ held.
  bool Runs(int64_t rank) const;  // whether there is such a rank
  void Lose(int64_t rank);
  void Evaluate(int64_t caller);
  bool AllAlike() const;
  void Release(const std::vector<int64_t>& ranks, int64_t caller);
  bool MayCompile(const std::vector<int64_t>& ranks);
  ByGroup PendingByGroup(int64_t rank) const;
  Failure FindMismatch(const std::map<int64_t, ByGroup>& waiting) const;
  Failure Compare(int64_t a, int64_t b, const std::vector<int64_t>& group, const ByGroup& of_a,
                  const ByGroup& of_b) const;
  Failure NobodyGoesOn() const;
  Failure Deadlock(const std::vector<int64_t>& ranks) const;
  Failure Missing(int64_t rank) const;
  Failure TakeFailureLocked(int64_t rank);

  // Held while programs are looked up, and compiled if they are new, that others may have too. Not
  // for ranks of one batch with different programs: they may as well compile at the same time.
  std::mutex compiling_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;  // empty: no world runs
  std::chrono::milliseconds timeout_{0};
  std::set<std::string> known_;  // what MayCompile has seen
  int64_t tensors_made_ = 0;     // at the last Release
  Failure failure_;
  bool final_ = false;  // no rank goes on after failure_
};

}  // namespace xla_cc
