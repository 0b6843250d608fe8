#include "torch_xla_cc/graph/noted_calls.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <utility>

#include "lowering/hash.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/graph/target.h"
#include "torch_xla_cc/made_tensors.h"
#include "torch_xla_cc/python_side.h"

namespace xla_cc {
namespace {

thread_local int paused = 0;
thread_local CallOfGroup noted_as;
thread_local bool is_noted_as = false;

// A tensor of the same value in the graph: what is changed in place later is not this. The script's
// modes do not see it, as it has not made them.
std::vector<at::Tensor> Snapshots(const std::vector<at::Tensor>& tensors) {
  const at::AutoDispatchBelowAutograd below;
  const c10::impl::ExcludeDispatchKeyGuard no_modes(
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  std::vector<at::Tensor> snapshots;
  for (const at::Tensor& x : tensors) snapshots.push_back(x.clone());
  return snapshots;
}

}  // namespace

NotedCalls& NotedCalls::Get() {
  static auto* calls = new NotedCalls;  // never destroyed: it holds tensors, let go by let_go
  return *calls;
}

void NotedCalls::Start(std::string group) {
  Forget();
  group_ = std::move(group);
  WatchOperators();
  counted_ = 0;
  gave_up_ = false;
  on_ = true;
}

void NotedCalls::Stop() {
  Forget();
  group_.clear();
  on_ = gave_up_ = false;
  StopWatching();
}

void NotedCalls::GiveUp(int64_t until) {
  Forget();
  until_ = until;
  on_ = false;
  gave_up_ = true;
}

void NotedCalls::Count() {
  if (++counted_ < until_ || !gave_up_) return;
  gave_up_ = false;
  on_ = true;
}

bool NotedCalls::Takes() const {
  return on_ && paused == 0 && !ThreadTarget() && BridgeState() == Bridge::kAway;
}

void NotedCalls::Add(const Collective& collective, const std::string& program,
                     const std::vector<at::Tensor>& operands,
                     const std::vector<at::Tensor>& results) {
  const uint64_t before = calls_.empty() ? 0 : calls_.back().chain;
  const uint64_t chain = Hash(std::to_string(before) + program);
  const bool of_all = GroupsOf(collective).list().size() <= 1;  // else there are others beside
  calls_.push_back({collective, Snapshots(operands), Snapshots(results), noted_as, chain, of_all});
  size_ = static_cast<int64_t>(calls_.size());
}

const NotedCall& NotedCalls::At(int64_t i) const {
  if (i < 0 || i >= size_) throw BadValue("there is no noted call " + std::to_string(i));
  return calls_[i];
}

void NotedCalls::Settle(int64_t first) {
  std::vector<std::vector<at::Tensor>> dropped;  // may run Python code, and so come back here
  for (int64_t i = 0; i < std::min(first, size_.load()); ++i) {
    NotedCall& call = calls_[i];
    dropped.push_back(std::exchange(call.operands, {}));
    dropped.push_back(std::exchange(call.results, {}));
  }
  dropped.clear();
  ForgetDeadTensors();
}

// What is let go may run Python code, and so come back here: after the list has changed.
void NotedCalls::Forget() {
  auto dropped = std::exchange(calls_, {});
  size_ = 0;
  std::vector<CallOfGroup> of_groups;  // the last of a transport joins its threads
  for (NotedCall& call : dropped) of_groups.push_back(std::move(call.of_group));
  dropped.clear();
  ForgetDeadTensors();  // else what runs next would have these calls in it
  Unlocked([&] { of_groups.clear(); });
}

void PauseNoting() { ++paused; }
void ResumeNoting() { --paused; }

NotedAs::NotedAs(CallOfGroup of_group) {
  noted_as = std::move(of_group);
  is_noted_as = true;
}
NotedAs::~NotedAs() {
  noted_as = {};
  is_noted_as = false;
}
bool NotedAs::OfThisThread() { return is_noted_as; }

void AnswerPeers() {
  const NotedCalls& calls = NotedCalls::Get();
  if (!calls.wanted() && calls.size() < NotedCalls::kMost) return;
  const py::gil_scoped_acquire locked;
  if (calls.Takes()) CallPython(Python().answer_peers);
}

}  // namespace xla_cc
