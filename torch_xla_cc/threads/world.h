// The ranks of a launch that are threads of this process, and where they meet.
//
// XLA:CPU compares nothing between ranks: different sizes read out of bounds, a missing rank aborts
// the process after 15 s. So before a rank runs its graph it comes to Meet(), which lets the ranks
// go on only when every collective that they are about to run has its like on every rank of its
// group (comparison.h). Everything else is an error, raised on every rank whom it concerns, that
// names both call sites.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "torch_xla_cc/groupcall/rank_group.h"
#include "torch_xla_cc/threads/comparison.h"
#include "torch_xla_cc/threads/graph_runner.h"

namespace xla_cc {

class Meeting;

// Held by its launch, which ends it; and by whoever is in a call of it. Once it has ended, whatever
// a thread that has entered it asks fails, and nothing of it is in the next one. Threads that have
// entered none are taken for ones of the world that runs: autograd's, and helpers of a rank.
class World : public std::enable_shared_from_this<World> {
 public:
  static constexpr std::chrono::milliseconds kNoLimit = std::chrono::milliseconds::max();

  // A new one, of ranks that run. Of several, the last begun is the one that runs.
  static std::shared_ptr<World> Begin(int64_t size, std::chrono::milliseconds timeout);
  // That of this thread, if it has entered one, even if that has ended: a rank's thread that
  // outlives its launch is in no other. Else the one that runs, or none.
  static std::shared_ptr<World> OfThread();
  static Failure Outside();  // of calls that there is no world for
  // Whether the launch of this rank's thread has ended: what runs now is another's.
  static bool Outlived();

  // Only by Begin.
  World(int64_t size, std::chrono::milliseconds timeout);
  void Enter(int64_t rank);  // on the thread of that rank
  void End();

  // A rank's own thread, which issues collectives and runs the graph, and those that read of its
  // device take turns. A thread may take several, one in the other.
  class Turn {
   public:
    Turn(std::shared_ptr<World> world, int64_t rank) : world_(std::move(world)), rank_(rank) {}
    ~Turn() {
      if (world_) world_->EndTurn(rank_);
    }
    Turn(Turn&&) = default;  // NOLINT: what was moved from holds no world
    Turn& operator=(Turn&&) = delete;

   private:
    std::shared_ptr<World> world_;
    int64_t rank_;
  };
  // Whether the rank's collectives may be issued on this thread: its own, if it has entered.
  bool MayIssue(int64_t rank);
  Failure RequireOwnThread(int64_t rank, const std::string& what, Site site);
  // Waits for it, or gives none if another thread has it. The end of the world ends the waiting.
  std::optional<Turn> TakeTurn(int64_t rank, bool wait);

  // Notes a collective of this rank. Fails, and loses what is pending, if there is a failure that
  // it has not been told, or its group has broken.
  Failure Issue(int64_t rank, IssuedCall issued);
  // Whether the rank has issued collectives that have not run.
  bool HasPending(int64_t rank);
  // What the rank has issued that has not run, in order.
  std::vector<IssuedCall> Pending(int64_t rank);
  // Forgets what the rank has pending, as if it had not been issued: it was traced, or for another.
  void Drop(int64_t rank);
  // Forgets it after an error that this rank alone may have: its peers may have theirs pending.
  void Lost(int64_t rank);
  // A call of this group has failed on this rank before it was issued.
  void Skip(int64_t rank, uint64_t group);
  // How often what the rank had pending was forgotten, after a failure.
  int64_t Losses(int64_t rank);
  // Whether all that the rank has handed over is known to be done.
  bool IsIdle(int64_t rank);
  // How long this rank's next meetings may take, if that is less than the world's time limit.
  void SetLimit(int64_t rank, std::chrono::milliseconds limit);

  // Waits until the rank may hand its graph to XLA, hands it over, and forgets what was pending.
  // Call without the interpreter lock.
  Failure Meet(int64_t rank, Site site, const std::string& program_hash, const HandOver& graph);

  // This group of torch.distributed has broken, by what `rank` has found there, and raises.
  void Disagree(int64_t rank, const Failure& failure, uint64_t group);
  // This rank raises that: it was told where a group of its meets.
  void Told(int64_t rank, const Failure& failure);
  // Why a call that meets the others beside the graph waits in vain: who runs its graph meanwhile,
  // with a call of this group, and so for this rank. Compiled calls are not announced.
  Failure WaitsInItsGraph(int64_t rank, uint64_t group);
  // By what this group has broken, if it has.
  Failure WhyBroken(uint64_t group);
  using Members = std::pair<std::string, std::vector<int64_t>>;  // name and ranks of a group
  // Of the group that has this number; none if it is of no group of this world.
  Members MembersOf(uint64_t group);
  // The number that the group of these has now, as this rank knows it; if there is none, `else_`.
  uint64_t NumberOf(int64_t rank, const Members& members, uint64_t else_);
  // This rank has returned from its function.
  void Finish(int64_t rank, Site site);
  // This rank has raised: the others shall stop.
  void Fail(int64_t rank, const std::string& message);
  // All shall stop, and none go on: unlike a disagreement, this is final.
  void Abort(const std::string& message);
  // Whether no rank goes on after a failure.
  bool IsFinal(int64_t rank);
  // The failure that this rank has not been told yet, if there is one; or by which this group has
  // broken.
  Failure TakeFailure(int64_t rank, uint64_t group = 0);
  // Whether this is a rank's own thread, which has not been told yet what all ranks are: they wait
  // until it has been.
  bool MustHear(int64_t rank);

  // Where the ranks of a group meet beside the graph: one for all of them. It is kept until all
  // have joined, for those who come when others have left, and then by those who have it. A rank
  // that joins a group of that name and those members once more joins the next, and so do the
  // others.
  std::shared_ptr<Meeting> Join(const RankGroup& group);

 private:
  struct Rank : RankState {
    bool told = false;  // of failure_
    Failure to_tell;    // beside that: by which it has lost what it has pending
    bool entered = false;
    bool meets = false;  // its own thread waits for its peers, or has not woken yet
    bool idle = true;
    uint64_t released = 0;
    int64_t losses = 0;
    int began = 0;  // how often it has begun torch.distributed anew
    // By group of torch.distributed, or 0 and the ranks: how many calls of it were counted.
    std::map<std::pair<uint64_t, std::vector<int64_t>>, uint64_t> counts;
    std::chrono::milliseconds limit = kNoLimit;
    Graph graph;                        // while waiting
    std::shared_ptr<GraphBatch> batch;  // the last one
    std::thread::id has_turn;           // who, while turns > 0
    int turns = 0;
  };
  struct Joint {
    std::shared_ptr<Meeting> kept;  // until all have joined
    std::weak_ptr<Meeting> meeting;
    uint64_t id = 0;  // of it
    size_t joined = 0;
    bool IsOver() const { return !kept && meeting.expired(); }
  };

  std::vector<std::shared_ptr<Meeting>> Meetings();
  bool HasEnded();
  void EndTurn(int64_t rank);

  // All of these with the monitor held.
  bool Runs(int64_t rank) const;  // whether there is such a rank
  void Lose(int64_t rank);
  // These ranks lose what they have pending, and these groups break, with all that is lost with
  // that (LossOf). All whom it concerns are told, but who raises it itself.
  void Break(const std::set<int64_t>& whose, const std::set<uint64_t>& groups, Failure failure,
             int64_t raises = -1);
  void LoseBy(int64_t rank, const Failure& failure);  // whose own thread raises it
  void Hears(int64_t rank, const Failure& failure);
  bool IsThreadOf(int64_t rank) const;
  bool IsOwnThread(int64_t rank) const;  // and not a helper, while that waits
  Failure WhyBrokenLocked(uint64_t group) const;
  bool Owed(int64_t rank) const;  // failure_
  uint64_t& CountOf(const IssuedCall& issued, int64_t rank);
  void ForgetCounts(int64_t rank);  // of calls of no group
  void CountAnew(int64_t rank);     // those
  void GoOnIfAllKnow(int64_t rank);
  void ForgetEndedGroups();
  void Know(int64_t rank);  // it has been told of failure_
  void BeginAnew(int64_t rank, int time);
  void Evaluate(int64_t caller);
  void Release(const std::vector<int64_t>& ranks, int64_t caller);
  RankStates States() const;
  Failure TakeFailureLocked(int64_t rank);

  Monitor monitor_;
  std::condition_variable turn_ended_;  // with the monitor's mutex
  std::vector<Rank> ranks_;
  bool ended_ = false;
  const std::chrono::milliseconds timeout_;
  Failure failure_;
  int failure_began_ = 0;  // which torch.distributed it is of, or the ranks that it was found by
  bool final_ = false;     // no rank goes on after failure_
  GraphRunner runner_;
  std::string stopped_;                                // why no rank goes on, if none does
  std::map<std::pair<Members, int>, Joint> meetings_;  // by which time
  std::map<std::pair<Members, int64_t>, int> joined_;  // by rank: how often
  std::map<uint64_t, Failure> broken_;                 // by the number of the group's meeting
  size_t most_meetings_ = 64;                          // before those that are over are forgotten
};

}  // namespace xla_cc
