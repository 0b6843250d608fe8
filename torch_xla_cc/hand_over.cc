// How the graphs of ranks that have met go to torch_xla.
#include <algorithm>
#include <exception>

#include "torch_xla_cc/gate.h"
#include "torch_xla_cc/ranks.h"

namespace xla_cc {
namespace {

constexpr size_t kMostKnown = 512;

std::string CouldNotRun(int64_t rank, const std::string& error) {
  return "rank " + std::to_string(rank) + " could not run its graph: " + error;
}

}  // namespace

// The hash of a program says how its collectives are made, and nothing of what else is in it. That
// shows in how many tensors were made since the last step, if no other rank is on its way.
bool Ranks::MayCompile(const std::vector<int64_t>& ranks) {
  if (!Gate::Works()) return false;
  if (std::all_of(ranks.begin(), ranks.end(),
                  [&](int64_t rank) { return ranks_[rank].graph->compiled; })) {
    return false;
  }
  std::string key;
  for (int64_t rank : ranks) key += std::to_string(rank) + ":" + ranks_[rank].program_hash + ";";
  const size_t running =
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.finished; });
  if (running == ranks.size()) {
    const int64_t made = TensorsMade();
    key += std::to_string(made - tensors_made_);
    tensors_made_ = made;
  }
  if (known_.size() >= kMostKnown) known_.clear();
  return known_.insert(std::move(key)).second;
}

void Ranks::HandOverAlone(int64_t rank, const HandOver& graph) {
  std::string error;
  {
    const std::lock_guard<std::mutex> one_at_a_time(compiling_);
    error = graph.run();
  }
  if (!error.empty()) Fail(rank, CouldNotRun(rank, error));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!ranks_.empty()) ranks_[rank].idle = false;
}

void Ranks::HandOverLed(int64_t leader, Batch& batch) {
  std::unique_lock<std::mutex> one_at_a_time(compiling_, std::defer_lock);
  if (batch.programs == 1) one_at_a_time.lock();
  const bool done = batch.gated ? RunAtGate(leader, batch) : RunAtOnce(leader, batch);
  if (one_at_a_time) one_at_a_time.unlock();
  // Waiting here for all of them spares each other rank a second time to sleep and wake.
  const bool wait = done && batch.programs == 1 &&
                    std::all_of(batch.graphs.begin(), batch.graphs.end(),
                                [](const auto& graph) { return bool(graph.second->wait); });
  if (wait) {
    for (const auto& [rank, graph] : batch.graphs) graph->wait();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  batch.failed = batch.failed || !done;
  for (const auto& [rank, its_leader] : batch.leaders) {
    if (its_leader != leader) continue;
    --batch.to_hand_over;
    if (!ranks_.empty()) ranks_[rank].idle = wait;
  }
  if (batch.to_hand_over == 0) changed_.notify_all();
}

bool Ranks::RunAtOnce(int64_t leader, Batch& batch) {
  bool first = true;
  for (const auto& [rank, graph] : batch.graphs) {
    if (batch.leaders.at(rank) != leader) continue;
    const std::string error = graph->run();
    if (!error.empty()) Fail(rank, CouldNotRun(rank, error));
    if (!error.empty() && first && batch.programs == 1) return false;
    first = false;
  }
  return true;
}

bool Ranks::RunAtGate(int64_t leader, Batch& batch) {
  std::map<int64_t, Gate> gates;
  std::map<int64_t, std::string> errors;
  size_t own = 0;
  bool compiled = true;
  for (const auto& [rank, graph] : batch.graphs) {
    if (batch.leaders.at(rank) != leader) continue;
    ++own;
    if (!compiled || graph->compiled) continue;
    std::string& error = errors[rank];
    try {
      Gate& gate = gates.try_emplace(rank, rank).first->second;
      gate.Compile([&error, graph = graph] { error = graph->run(); });
      compiled = gate.Waits() || error.empty();
    } catch (const std::exception& failure) {  // what ran on the device before
      error = failure.what();
      compiled = false;
    }
    if (!compiled) Fail(rank, CouldNotRun(rank, error));
  }
  std::unique_lock<std::mutex> lock(mutex_);
  batch.failed = batch.failed || !compiled;
  batch.to_compile -= own;
  changed_.notify_all();
  changed_.wait(lock, [&] { return batch.failed || batch.to_compile == 0; });
  const bool go = !batch.failed;
  lock.unlock();
  for (auto& [rank, gate] : gates) {
    batch.graphs.at(rank)->turned_away = !go;
    gate.Open(go);
    if (go && !errors[rank].empty()) Fail(rank, CouldNotRun(rank, errors[rank]));
  }
  for (const auto& [rank, graph] : batch.graphs) {
    if (!go || batch.leaders.at(rank) != leader || !graph->compiled) continue;
    const std::string error = graph->run();
    if (!error.empty()) Fail(rank, CouldNotRun(rank, error));
  }
  return go;
}

}  // namespace xla_cc
