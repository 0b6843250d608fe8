// Collectives that are pending on a rank, where ranks have to run the same programs: what it takes
// to run them beside its graph (python/torch_xla_cc/_processes/agreement.py).
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lowering/collective.h"

namespace xla_cc {

// How a call is carried out beside the graph, if it is one of a group of torch.distributed.
struct CallOfGroup {
  std::function<void()> compare;  // with the group's other ranks
  // By the group's ranks alone: its results. None if the graph's own call is run for it.
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& operands)> apart;
};

struct NotedCall {
  Collective collective;
  // As they were at the call. Held here and not by Python: nobody else shall find them.
  std::vector<at::Tensor> operands;
  std::vector<at::Tensor> results;  // its token the last, if it has one
  CallOfGroup of_group;
  uint64_t chain = 0;   // a hash of this call and all before it
  bool of_all = false;  // ranks make it, in one group
};

// All need the interpreter lock but where it says that they do not.
class NotedCalls {
 public:
  // Those that may be pending.
  static constexpr int64_t kMost = 1000;

  static NotedCalls& Get();

  // `group`: the name of the one whose ranks agree.
  void Start(std::string group);
  const std::string& group() const { return group_; }
  // The world has ended.
  void Stop();
  // Ranks make different calls, so each call is to run when it is made, until this rank makes the
  // one that is counted as the `until`th.
  void GiveUp(int64_t until);
  // None of these needs a lock.
  bool on() const { return on_; }
  bool gave_up() const { return gave_up_; }
  int64_t size() const { return size_; }
  // A call is made that all ranks make, in the same order: it counts.
  void Count();
  int64_t counted() const { return counted_; }

  // Whether what this thread attaches now is a call of the rank. It is none in a computation that
  // is traced for itself, on paper, or where torch.compile only looks or captures.
  bool Takes() const;
  // Somebody waits for this rank: its next call answers first.
  void SetWanted(bool wanted) { wanted_ = wanted; }
  bool wanted() const { return wanted_; }

  // `program`: what it is lowered to, the same on all ranks that make the same call.
  void Add(const Collective& collective, const std::string& program,
           const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& results);
  const NotedCall& At(int64_t i) const;
  // The first have run, and nothing needs them: they only count.
  void Settle(int64_t first);
  void Forget();

 private:
  std::atomic<bool> on_{false};
  std::atomic<bool> gave_up_{false};
  std::atomic<bool> wanted_{false};
  std::string group_;
  std::atomic<int64_t> size_{0};
  std::atomic<int64_t> counted_{0};
  std::atomic<int64_t> until_{0};
  std::vector<NotedCall> calls_;
};

// What this thread attaches between these is not noted.
void PauseNoting();
void ResumeNoting();

// What is noted of the call that this thread attaches next.
class NotedAs {
 public:
  explicit NotedAs(CallOfGroup of_group);
  ~NotedAs();
  NotedAs(const NotedAs&) = delete;
  NotedAs& operator=(const NotedAs&) = delete;

  static bool OfThisThread();
};

// Before a call of this rank: others may wait for those that it has made.
void AnswerPeers();

}  // namespace xla_cc
