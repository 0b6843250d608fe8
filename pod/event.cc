#include "pod/event.h"

#include <deque>
#include <thread>
#include <utility>

namespace xla_cc::pod {
namespace {

// Runs callbacks on a thread of its own, which lives as long as the process.
class Callbacks {
 public:
  Callbacks() {
    std::thread([this] { Work(); }).detach();
  }

  void Add(std::function<void()> callback) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(callback));
    changed_.notify_all();
  }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !waiting_.empty(); });
      auto callback = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      callback();
      callback = nullptr;  // and what it held, without the lock
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
};

}  // namespace

std::shared_ptr<Occurrence> Occurrence::Already(Outcome outcome) {
  auto happened = std::make_shared<Occurrence>();
  happened->Happen(std::move(outcome));
  return happened;
}

void Occurrence::Happen(Outcome outcome) {
  std::vector<Callback> callers;
  {
    const std::lock_guard lock(mutex_);
    if (happened_) return;
    happened_ = true;
    outcome_ = std::move(outcome);
    callers.swap(callers_);
    changed_.notify_all();
  }
  if (callers.empty()) return;
  static Callbacks* const callbacks = new Callbacks;  // never deleted: callers may come at any time
  for (Callback& caller : callers) {
    callbacks->Add([caller = std::move(caller), outcome = outcome_] { caller(outcome); });
  }
}

bool Occurrence::HasHappened() const {
  const std::lock_guard lock(mutex_);
  return happened_;
}

Occurrence::Outcome Occurrence::Wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return happened_; });
  return outcome_;
}

void Occurrence::Then(Callback callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!happened_) {
      callers_.push_back(std::move(callback));
      return;
    }
  }
  callback(outcome_);
}

}  // namespace xla_cc::pod
