#include "torch_xla_cc/threads/graph_runner.h"

#include <algorithm>
#include <exception>

#include "torch_xla_cc/threads/compile_gate.h"

namespace xla_cc {
namespace {

constexpr size_t kMostKnown = 512;

std::string CouldNotRun(int64_t rank, const std::string& error) {
  return "rank " + std::to_string(rank) + " could not run its graph: " + error;
}

}  // namespace

// The hash of a program says how its collectives are made, and nothing of what else is in it. That
// shows in how many tensors were made since the last step, if no other rank is on its way.
bool GraphRunner::MayCompile(const std::map<int64_t, Graph>& graphs, bool all_come) {
  if (!CompileGate::Works()) return false;
  if (std::all_of(graphs.begin(), graphs.end(),
                  [](const auto& graph) { return graph.second.hand_over->compiled; })) {
    return false;
  }
  std::string key;
  for (const auto& [rank, graph] : graphs) {
    key += std::to_string(rank) + ":" + graph.program_hash + ";";
  }
  if (all_come) {
    const int64_t made = TensorsMade();
    key += std::to_string(made - tensors_made_);
    tensors_made_ = made;
  }
  if (known_.size() >= kMostKnown) known_.clear();
  return known_.insert(std::move(key)).second;
}

std::shared_ptr<GraphBatch> GraphRunner::Gather(const std::map<int64_t, Graph>& graphs,
                                                int64_t caller, bool all_come) {
  const auto batch = std::make_shared<GraphBatch>();
  batch->gated = MayCompile(graphs, all_come);
  batch->to_compile = batch->to_hand_over = graphs.size();
  std::map<std::string, int64_t> leaders;  // by program
  const auto own = graphs.find(caller);
  if (own != graphs.end()) leaders[own->second.program_hash] = caller;
  for (const auto& [rank, graph] : graphs) {
    batch->leaders[rank] = leaders.emplace(graph.program_hash, rank).first->second;
    batch->graphs[rank] = graph.hand_over;
  }
  batch->programs = leaders.size();
  return batch;
}

void GraphRunner::RunAlone(int64_t rank, const HandOver& graph) {
  std::string error;
  {
    const std::lock_guard<std::mutex> one_at_a_time(compiling_);
    error = graph.run();
  }
  if (!error.empty()) fail_(rank, CouldNotRun(rank, error));
}

void GraphRunner::RunLed(int64_t leader, GraphBatch& batch) {
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
  const std::lock_guard<std::mutex> lock(monitor_.mutex);
  batch.failed = batch.failed || !done;
  batch.waited_for = wait;
  batch.to_hand_over -= std::count_if(batch.leaders.begin(), batch.leaders.end(),
                                      [&](const auto& led) { return led.second == leader; });
  if (batch.to_hand_over == 0) monitor_.changed.notify_all();
}

bool GraphRunner::RunAtOnce(int64_t leader, GraphBatch& batch) {
  bool first = true;
  for (const auto& [rank, graph] : batch.graphs) {
    if (batch.leaders.at(rank) != leader) continue;
    const std::string error = graph->run();
    if (!error.empty()) fail_(rank, CouldNotRun(rank, error));
    if (!error.empty() && first && batch.programs == 1) return false;
    first = false;
  }
  return true;
}

bool GraphRunner::RunAtGate(int64_t leader, GraphBatch& batch) {
  std::map<int64_t, std::string> errors;
  std::map<int64_t, CompileGate> gates;  // whose threads write into these
  size_t own = 0;
  bool compiled = true;
  for (const auto& [rank, graph] : batch.graphs) {
    if (batch.leaders.at(rank) != leader) continue;
    ++own;
    if (!compiled || graph->compiled) continue;
    std::string& error = errors[rank];
    try {
      CompileGate& gate = gates.try_emplace(rank, rank).first->second;
      gate.Compile([&error, graph = graph] { error = graph->run(); });
      compiled = gate.Waits() || error.empty();
    } catch (const std::exception& failure) {  // what ran on the device before
      error = failure.what();
      compiled = false;
    }
    if (!compiled) fail_(rank, CouldNotRun(rank, error));
  }
  std::unique_lock<std::mutex> lock(monitor_.mutex);
  batch.failed = batch.failed || !compiled;
  batch.to_compile -= own;
  monitor_.changed.notify_all();
  monitor_.changed.wait(lock, [&] { return batch.failed || batch.to_compile == 0; });
  const bool go = !batch.failed;
  lock.unlock();
  for (auto& [rank, gate] : gates) {
    batch.graphs.at(rank)->turned_away = !go;
    gate.Open(go);
    if (go && !errors[rank].empty()) fail_(rank, CouldNotRun(rank, errors[rank]));
  }
  for (const auto& [rank, graph] : batch.graphs) {
    if (!go || batch.leaders.at(rank) != leader || !graph->compiled) continue;
    const std::string error = graph->run();
    if (!error.empty()) fail_(rank, CouldNotRun(rank, error));
  }
  return go;
}

}  // namespace xla_cc
