#include "torch_xla_cc/distributed/host/background_task.h"

#include <cxxabi.h>

#include <thread>

#include "torch_xla_cc/groupcall/at_work.h"

namespace xla_cc {

void BackgroundTask::Start(std::function<void()> f) {
  {
    const std::lock_guard lock(mutex_);
    if (started_) return;
    started_ = true;
  }
  std::thread([this, given = std::move(f)]() mutable {
    const AtWork at_work;
    const std::function<void()> f = std::move(given);  // and what it holds, before that
    const auto end = [this](const std::exception_ptr& wrong) {
      const std::lock_guard lock(mutex_);
      wrong_ = wrong;
      ended_ = true;
      changed_.notify_all();
    };
    std::exception_ptr wrong;
    try {
      f();
    } catch (const abi::__forced_unwind&) {
      end(nullptr);
      throw;  // Python ends the thread, which has asked for the interpreter lock when there is none
    } catch (...) {
      wrong = std::current_exception();
    }
    end(wrong);
  }).detach();
}

bool BackgroundTask::started() {
  const std::lock_guard lock(mutex_);
  return started_;
}

bool BackgroundTask::ended() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

bool BackgroundTask::failed() {
  const std::lock_guard lock(mutex_);
  return wrong_ != nullptr;
}

bool BackgroundTask::Wait(Timeout timeout) {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return ended_; };
  if (timeout == Timeout::zero()) {
    changed_.wait(lock, ended);
  } else if (!changed_.wait_for(lock, Bounded(timeout), ended)) {
    return false;
  }
  if (wrong_) std::rethrow_exception(wrong_);
  return true;
}

}  // namespace xla_cc
