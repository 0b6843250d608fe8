#include "torch_xla_cc/groupcall/job_queue.h"

#include <utility>

#include "torch_xla_cc/groupcall/at_work.h"

namespace xla_cc {

JobQueue::~JobQueue() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void JobQueue::Add(Job job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  changed_.notify_all();
}

void JobQueue::RunOrAdd(Job job) {
  {
    std::unique_lock lock(mutex_);
    if (busy_ || !jobs_.empty()) {
      lock.unlock();
      Add(std::move(job));
      return;
    }
    busy_ = true;
  }
  const auto ended = [this] {
    const std::lock_guard lock(mutex_);
    busy_ = false;
    changed_.notify_all();
  };
  try {
    const WaitsForPeers waits;
    job();
  } catch (...) {
    ended();
    throw;
  }
  ended();
}

void JobQueue::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !busy_ && (!jobs_.empty() || ends_); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    {
      const AtWork at_work;
      job();
      job = nullptr;  // and what it held, without the lock
    }
    lock.lock();
    busy_ = false;
  }
}

}  // namespace xla_cc
