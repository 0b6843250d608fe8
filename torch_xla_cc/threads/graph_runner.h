// How the graphs of ranks that have met go to torch_xla.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace xla_cc {

// How a rank's graph is handed over. Called on any rank's thread; neither may throw.
struct HandOver {
  std::function<std::string()> run;  // without waiting for the results; says why it could not
  std::function<void()> wait;        // until the rank's device is done; none if it need not be
  bool compiled = false;             // already: nothing of it takes long before it runs
  // Set before `run` fails because of a peer: its error is then not the rank's.
  mutable std::atomic<bool> turned_away{false};
};

// What a world's ranks have in common, and how they hear that it has changed.
struct Monitor {
  std::mutex mutex;
  std::condition_variable changed;
};

// A rank's graph, and what its program is known by.
struct Graph {
  const HandOver* hand_over;  // outlives its handing over
  std::string program_hash;
};

// Graphs of ranks that go on together. The monitor guards what is not const.
//
// One of the ranks that gave the same hash hands over the graphs of all: the first is compiled, the
// others are found, and nobody wakes for it. Ranks with different programs hand them over, and so
// compile them, at the same time. Where any of them may have to be compiled, no program starts
// before all are (compile_gate.h).
struct GraphBatch {
  std::map<int64_t, const HandOver*> graphs;  // by rank
  std::map<int64_t, int64_t> leaders;         // by rank: who hands over its graph
  size_t programs = 0;                        // different ones
  bool gated = false;                         // a compile is to be expected

  size_t to_compile = 0;    // graphs that are not at their gates yet
  size_t to_hand_over = 0;  // graphs
  bool failed = false;      // a graph could not be run, and none was
  bool waited_for = false;  // the devices of all of them are done
};

class GraphRunner {
 public:
  // `fail` hears of a rank whose graph could not be run, and why; called without the monitor.
  using Fail = std::function<void(int64_t rank, const std::string& why)>;
  GraphRunner(Monitor& monitor, Fail fail) : monitor_(monitor), fail_(std::move(fail)) {}

  // With the monitor held. `caller` leads if it is one of the ranks, as it need not be woken;
  // `all_come` says that no other rank is on its way.
  std::shared_ptr<GraphBatch> Gather(const std::map<int64_t, Graph>& graphs, int64_t caller,
                                     bool all_come);
  // These without it. A graph that meets no other:
  void RunAlone(int64_t rank, const HandOver& graph);
  void RunLed(int64_t leader, GraphBatch& batch);

 private:
  bool MayCompile(const std::map<int64_t, Graph>& graphs, bool all_come);
  // Whether the graphs of the batch that the leader hands over were.
  bool RunAtOnce(int64_t leader, GraphBatch& batch);
  bool RunAtGate(int64_t leader, GraphBatch& batch);

  Monitor& monitor_;
  const Fail fail_;
  // Held while programs are looked up, and compiled if they are new, that others may have too. Not
  // for ranks of one batch with different programs: they may as well compile at the same time.
  std::mutex compiling_;
  std::set<std::string> known_;  // what MayCompile has seen
  int64_t tensors_made_ = 0;     // when it last looked
};

}  // namespace xla_cc
