#include "torch_xla_cc/distributed/work.h"

#include <algorithm>
#include <atomic>

#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/gil.h"

namespace xla_cc {

Future FutureOfTensors() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

Future FutureOf(c10d::Work& work) {
  const Future future = FutureOfTensors();
  try {
    work.wait(kNoTimeout);
    future->markCompleted(c10::IValue(work.result()));
  } catch (...) {
    future->setError(std::current_exception());
  }
  return future;
}

IssuedWork::IssuedWork(Tensors outputs, int source)
    : Work(-1, c10d::OpType::UNKNOWN), outputs_(std::move(outputs)), source_(source) {}

ReceiveWork::ReceiveWork(std::function<bool()> has_come, std::function<int(Timeout)> take,
                         at::Tensor output)
    : Work(-1, c10d::OpType::RECV),
      has_come_(std::move(has_come)),
      take_(std::move(take)),
      output_(std::move(output)) {}

bool ReceiveWork::isCompleted() {
  if (IsTaking()) return false;
  const std::unique_lock turn(turn_, std::try_to_lock);
  if (!turn) return false;  // another thread waits for it
  const auto ended = Begin();
  if (take_ && has_come_()) Take(kNoTimeout);
  return !take_;
}

bool ReceiveWork::wait(std::chrono::milliseconds timeout) {
  if (IsTaking()) {
    throw BadValue(
        "wait: this thread waits for the receive already, and a signal handler or a __del__ that "
        "ran meanwhile waits for it as well, which cannot end. Wait for it outside of those");
  }
  std::unique_lock turn(turn_, std::defer_lock);
  const Timeout limit = timeout == kNoTimeout ? kLongest : Bounded(timeout);
  if (!Unlocked([&] { return turn.try_lock_for(limit); })) {
    throw CollectiveTimeout("wait: another thread waits for the receive, which is not done after " +
                            Milliseconds(timeout));
  }
  const auto ended = Begin();
  if (take_) Take(timeout);
  return true;
}

void ReceiveWork::Take(std::chrono::milliseconds timeout) {
  if (failed_) std::rethrow_exception(failed_);
  try {
    source_ = take_(Bounded(timeout));
  } catch (...) {
    failed_ = std::current_exception();
    throw;
  }
  take_ = nullptr;
}

bool CoalescedWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(),
                     [](const WorkPtr& work) { return work->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(),
                     [](const WorkPtr& work) { return work->isSuccess(); });
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  for (const WorkPtr& work : works_) work->wait(timeout);
  return true;
}

Tensors CoalescedWork::result() {
  Tensors all;
  for (const WorkPtr& work : works_) {
    for (const at::Tensor& x : work->result()) all.push_back(x);
  }
  return all;
}

std::exception_ptr CoalescedWork::exception() const {
  for (const WorkPtr& work : works_) {
    if (const std::exception_ptr error = work->exception()) return error;
  }
  return nullptr;
}

Future CoalescedWork::getFuture() {
  const Future future = FutureOfTensors();
  if (works_.empty()) future->markCompleted(c10::IValue(Tensors()));
  const auto left = std::make_shared<std::atomic<size_t>>(works_.size());
  const auto self = c10::intrusive_ptr<CoalescedWork>::reclaim_copy(this);
  for (const WorkPtr& work : works_) {
    work->getFuture()->addCallback([self, left, future](c10::ivalue::Future& part) {
      if (part.hasError()) {
        future->setErrorIfNeeded(part.exception_ptr());
      } else if (--*left == 0 && !future->hasError()) {
        future->markCompleted(c10::IValue(self->result()));
      }
    });
  }
  return future;
}

}  // namespace xla_cc
