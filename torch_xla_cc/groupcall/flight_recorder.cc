#include "torch_xla_cc/groupcall/flight_recorder.h"

namespace xla_cc {

Recorder& Recorder::Get() {
  static auto* recorder = new Recorder;
  return *recorder;
}

void Recorder::SetCapacity(size_t capacity) {
  const std::lock_guard lock(mutex_);
  capacity_ = capacity;
}

void Recorder::Add(const CallPtr& call) {
  const std::lock_guard lock(mutex_);
  const auto rank = static_cast<size_t>(call->rank);
  if (by_rank_.size() <= rank) by_rank_.resize(rank + 1);
  std::deque<CallPtr>& calls = by_rank_[rank];
  calls.push_back(call);
  while (calls.size() > capacity_) calls.pop_front();
}

std::vector<CallPtr> Recorder::Of(int64_t rank) {
  const std::lock_guard lock(mutex_);
  if (rank < 0 || by_rank_.size() <= static_cast<size_t>(rank)) return {};
  const std::deque<CallPtr>& calls = by_rank_[rank];
  return {calls.begin(), calls.end()};
}

void Recorder::SetDumper(Dumper dumper) {
  const std::lock_guard lock(mutex_);
  dumper_ = std::move(dumper);
}

void Recorder::Dump(int64_t rank, const std::string& why) {
  Dumper dumper;
  {
    const std::lock_guard lock(mutex_);
    dumper = dumper_;
  }
  if (dumper) dumper(rank, why);
}

void Recorder::Clear() {
  const std::lock_guard lock(mutex_);
  by_rank_.clear();
}

}  // namespace xla_cc
