#include "torch_xla_cc/distributed/host/host_work.h"

#include <chrono>

#include "torch_xla_cc/distributed/host/host_memory.h"
#include "torch_xla_cc/distributed/run_pending.h"
#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/gil.h"
#include "torch_xla_cc/groupcall/at_work.h"

namespace xla_cc {
namespace {

using Clock = std::chrono::steady_clock;

// How often one who waits looks whether another rank has given up.
constexpr Timeout kSlice{500};

}  // namespace

HostWork::HostWork(CallPtr call, Said said, std::vector<Step> steps, Tensors outputs,
                   StoreCheckPtr check, std::shared_ptr<Health> health, InGlooCount in_gloo)
    : Work(-1, c10d::OpType::UNKNOWN),
      call_(std::move(call)),
      said_(std::move(said)),
      steps_(std::move(steps)),
      outputs_(std::move(outputs)),
      check_(std::move(check)),
      health_(std::move(health)),
      in_gloo_(std::move(in_gloo)),
      left_(steps_.size() + 1) {}

void HostWork::Start() {
  try {
    health_->ThrowIfBroken();
    const bool compared = call_->state != GroupCall::State::kIssued;
    // Without steps something else carries it out, which may need to know.
    if (!compared) said_by_all_ = check_->Compare(*call_, said_, steps_.empty());
    call_->state = GroupCall::State::kRunning;
    const auto self = c10::intrusive_ptr<HostWork>::reclaim_copy(this);
    for (const Step& step : steps_) {
      const WorkPtr work = step.start();
      ++*in_gloo_;
      work->getFuture()->addCallback([self](c10::ivalue::Future& step) { self->StepEnded(step); });
    }
    OneEnded();
    check_->CleanUp();
  } catch (...) {
    Fail(std::current_exception());
  }
}

void HostWork::StepEnded(c10::ivalue::Future& step) {
  --*in_gloo_;  // before who waits for it wakes, and may destroy the group
  if (step.hasError()) {
    try {
      check_->Explain(*call_, said_, step.tryRetrieveErrorMessage(), -1);
    } catch (...) {
      Fail(std::current_exception());
    }
    return;
  }
  OneEnded();
}

void HostWork::OneEnded() {
  Future future;
  {
    const std::lock_guard lock(state_mutex_);
    if (--left_ > 0 || failed_) return;
    call_->End(GroupCall::State::kDone);
    future = future_;
    changed_.notify_all();
  }
  if (!future) return;
  try {
    Finish();
    future->markCompleted(c10::IValue(outputs_));
  } catch (...) {
    future->setErrorIfNeeded(std::current_exception());
  }
}

void HostWork::Fail(std::exception_ptr error) {
  health_->Break(error);
  Future future;
  {
    const std::lock_guard lock(state_mutex_);
    if (failed_) return;
    failed_ = error;
    call_->End(GroupCall::State::kFailed);
    future = future_;
    changed_.notify_all();
  }
  if (future) future->setErrorIfNeeded(error);
}

void HostWork::Finish() {
  // Writing takes the interpreter lock, and who waits for that must not hold it.
  Unlocked([this] {
    std::call_once(finished_, [this] {
      std::unique_lock<std::recursive_mutex> lock;
      if (!outputs_.empty()) lock = LockTensors(outputs_[0].device());
      for (const Step& step : steps_) step.finish();
      steps_.clear();  // and what they held
    });
  });
}

bool HostWork::isCompleted() {
  bool ended = false;
  {
    const std::lock_guard lock(state_mutex_);
    if (failed_) return true;
    ended = left_ == 0;
  }
  if (ended) {
    Finish();
  } else {
    RunPendingOnce(asked_);
  }
  return ended;
}

std::exception_ptr HostWork::exception() const {
  const std::lock_guard lock(state_mutex_);
  return failed_;
}

bool HostWork::wait(std::chrono::milliseconds timeout) {
  RunPendingBeforeWaiting();
  return Await(timeout);
}

bool HostWork::Await(std::chrono::milliseconds timeout) {
  timeout = Bounded(timeout);
  const auto begin = Clock::now();
  const auto ended = [this] { return left_ == 0 || failed_; };
  Unlocked([&] {
    const WaitsForPeers waits;
    std::unique_lock lock(state_mutex_);
    while (!ended()) {
      auto slice = kSlice;
      if (timeout != kNoTimeout) {
        const auto left = std::chrono::duration_cast<Timeout>(begin + timeout - Clock::now());
        if (left.count() <= 0) {
          throw CollectiveTimeout("wait: " + said_.what + " at " + said_.site +
                                  " is not done after " + Milliseconds(timeout));
        }
        slice = std::min(slice, left);
      }
      if (changed_.wait_for(lock, slice, ended)) break;
      lock.unlock();
      try {
        check_->ThrowIfBroken();
      } catch (...) {
        Fail(std::current_exception());
      }
      lock.lock();
    }
  });
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  Finish();
  return true;
}

Future HostWork::getFuture() {
  const Future future = FutureOfTensors();
  {
    const std::lock_guard lock(state_mutex_);
    if (future_) return future_;
    future_ = future;
    if (left_ > 0 && !failed_) return future;
  }
  if (const std::exception_ptr error = exception()) {
    future->setError(error);
    return future;
  }
  try {
    Finish();
    future->markCompleted(c10::IValue(outputs_));
  } catch (...) {
    future->setErrorIfNeeded(std::current_exception());
  }
  return future;
}

}  // namespace xla_cc
