// Jobs of one group, one after the other, on a thread beside the caller's.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace xla_cc {

class JobQueue {
 public:
  using Job = std::function<void()>;  // throws nothing

  JobQueue() = default;
  ~JobQueue();  // after all that was added
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  void Add(Job job);
  // Runs it here if nothing is in the queue, which saves two changes of threads; adds it otherwise.
  void RunOrAdd(Job job);

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool busy_ = false;
  bool ends_ = false;
  std::thread thread_;  // from the first job that is added
};

}  // namespace xla_cc
